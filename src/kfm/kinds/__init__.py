"""The kinds of source that are no agency's own, one file each: how to ask for the bytes, and how to
read them. Those of agencies are `kfm.extras.agencies`, images are `kfm.extras.raster`.

A package of your own adds a kind by an entry point:

    [project.entry-points."kfm.kinds"]
    gauges = "my_package.gauges"

`my_package/gauges.py` has `KIND = kfm.model.kinds.Kind("json", asks=True)`, what is known of it
without reading anything, and the functions that `kfm.connectors.loading.Loaded` names: `readers`,
and where they are needed `columns`, `key`, `acquire` and the others. Commands import the module
that the entry point names, so keep it light, or let `Kind(..., module="my_package.reading")` name
where the rest is: that one is imported in the child alone. A kind that kfm ships cannot be replaced.
"""
