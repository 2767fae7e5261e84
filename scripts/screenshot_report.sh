#!/usr/bin/env bash
# docs/report.png: the report's front page as README shows it (needs Chromium; make report first)
set -euo pipefail
cd "$(dirname "$0")/.."
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,1150 \
  --screenshot=docs/report.png "file://$PWD/${1:-report}/index.html" 2> /dev/null
