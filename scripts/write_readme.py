"""Write the numbers of README.md anew from the committed results (make readme)."""

from dpot.reporting.readme import update

if __name__ == "__main__":
    print("README.md is written anew" if update() else "README.md is up to date")
