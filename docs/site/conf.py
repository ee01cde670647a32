"""Settings of the pages for a browser (docs/site/build.py)."""

project = "dsv4_npu_ops"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
html_theme = "furo"
html_title = "dsv4_npu_ops"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
# Links name headings as the hosting page does.
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_use_ivar = True
napoleon_custom_sections = [("Source", "notes_style")]
# Indented commands and the output of a program have no language.
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]
