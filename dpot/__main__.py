"""`python -m dpot`: the same as the `dpot` command."""

from dpot.launch import main

if __name__ == "__main__":
    main()
