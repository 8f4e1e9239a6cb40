"""Images as a kind of source: GRIB2, NetCDF and GeoTIFF, looked at by `sniff` before GDAL is.

Found by entry point; needs the extra `raster`.
"""
