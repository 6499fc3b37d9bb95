"""One format a file, each with `render(document, out)`. Renderers lay out what diagnosis found and compute nothing."""
