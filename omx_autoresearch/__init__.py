"""omx_autoresearch: the runtime that keeps a long agent mission honest from start to end."""

__version__ = "0.1.0"
