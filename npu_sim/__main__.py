"""``python -m npu_sim``: the command line."""

from npu_sim.cli import main

if __name__ == "__main__":
    main()
