"""Arrays as functions hand them on, by what they hold."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Floats", "Mask", "Shapes", "Values", "Whole"]

Array = npt.NDArray[Any]  # numbers of one type, whichever
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]  # which rows
Whole = npt.NDArray[np.int64]  # numbers of rows, or how many
Shapes = npt.NDArray[np.object_]  # shapely's
Values = Sequence[Any]  # of one column as read: a list, or an Arrow array
