"""Object stores with conditional writes: local folder, S3, memory."""

from __future__ import annotations
