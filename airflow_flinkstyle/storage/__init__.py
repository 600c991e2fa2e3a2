"""Object stores with conditional writes: local folder and S3."""

from __future__ import annotations
