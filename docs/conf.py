"""The documentation site: `.ci/docs` builds it, and fails on any warning."""

import contextlib
import importlib.metadata
import inspect
import io
import os

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import faiss_prh
import faiss_prh.dask
import faiss_prh.theory

project = "faiss-prh"
author = "faiss-prh contributors"
version = release = importlib.metadata.version("faiss-prh")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_*"]
myst_heading_anchors = 3  # so that links such as trust.md#faults work here as on GitHub
default_role = "py:obj"  # `name` in a docstring is a link where there is such a name
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # the docstrings give the types, and more readably
# Parameters and attributes as lists: a type such as "array of shape (m, d)" is a phrase, not a name to link.
napoleon_use_param = napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]
html_theme = "alabaster"
html_theme_options = {"description": "Pairwise Rotation Hashing for Faiss", "page_width": "1100px"}
html_show_sourcelink = False


class Help(SphinxDirective):
    """``.. help:: build`` shows what ``faiss-prh build --help`` prints."""

    optional_arguments = 1

    def run(self):
        """Return the text as a literal block."""
        os.environ["COLUMNS"] = "100"
        (command,) = importlib.metadata.entry_points(group="console_scripts", name="faiss-prh")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            command.load()([*self.arguments, "--help"])
        if not printed.getvalue():
            raise self.error(f"faiss-prh {' '.join(self.arguments)} --help prints nothing")
        return [nodes.literal_block(printed.getvalue(), printed.getvalue(), language="text")]


def public_names():
    """Return the full names of all that the package promises."""
    theory = (name for name, _ in inspect.getmembers(faiss_prh.theory, inspect.isfunction) if name[0] != "_")
    return {
        *(f"faiss_prh.{name}" for name in faiss_prh.__all__),
        *(f"faiss_prh.dask.{name}" for name in faiss_prh.dask.__all__),
        *(f"faiss_prh.theory.{name}" for name in theory),
    }


def check_every_public_name_has_an_entry(app, env):
    """Warn, and so fail with ``-W``, about names that no page documents."""
    documented = {name for name, *_ in env.domains["py"].get_objects()}
    for name in sorted(public_names() - documented):
        logging.getLogger(__name__).warning("no page documents %s", name)


def setup(app):
    """Add what is defined above to Sphinx."""
    app.add_directive("help", Help)
    app.connect("env-check-consistency", check_every_public_name_has_an_entry)
