"""Where the installed script enters. It only finds the package, so that everything else is compiled once and kept."""

import gc
import os
import sys

gc.disable()  # there is nothing to collect in a few milliseconds, but much to look through
sys.path.insert(0, __file__.rsplit("/", 3)[0])

if sys.argv[-1] == "statusline":
    from omx_autoresearch.surfaces.statusline import main
else:
    from omx_autoresearch.surfaces.hook import main

if __name__ == "__main__":
    # Everything is written by then; taking an interpreter apart would cost as much as a small import.
    os._exit(main(sys.argv))
