"""`python -m kgroup` runs the command `kgroup`."""

from clients.kgroup.program import main

if __name__ == "__main__":
    main()
