"""Write results/README.md and the numbers of README.md anew from the committed results (make readme)."""

from dpot.config import REPOSITORY
from dpot.reporting.readme import update

if __name__ == "__main__":
    changed = [str(path.relative_to(REPOSITORY)) for path in update()]
    print(f"written anew: {', '.join(changed)}" if changed else "README.md and results/README.md are up to date")
