"""Where the installed script enters. It only finds the package, so that everything else is compiled once and kept."""

import sys

sys.path.insert(0, __file__.rsplit("/", 3)[0])

if sys.argv[-1] == "statusline":
    from omx_autoresearch.surfaces.statusline import main
else:
    from omx_autoresearch.surfaces.hook import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
