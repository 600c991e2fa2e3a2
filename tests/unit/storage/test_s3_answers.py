"""What is believed of an S3 service's answer to a copy."""

from __future__ import annotations

import base64
import hashlib

import pytest

from airflow_flinkstyle.storage.s3_errors import digest_of_copy

SHA256 = hashlib.sha256(b"x")
MD5 = hashlib.md5(b"x", usedforsecurity=False).hexdigest()
CHECKSUM = base64.b64encode(SHA256.digest()).decode()


@pytest.mark.parametrize(
    ("result", "encryption", "digest"),
    [
        ({"ETag": f'"{MD5}"', "ChecksumSHA256": CHECKSUM}, "", f"sha256:{SHA256.hexdigest()}"),
        ({"ETag": f'"{MD5}"'}, "AES256", f"etag:{MD5}"),
        ({"ETag": f'"{MD5}"'}, "aws:kms", None),
        ({"ETag": f'"{MD5}-2"'}, "", None),
        ({"ETag": f'"{MD5}-2"', "ChecksumSHA256": f"{CHECKSUM}-2"}, "", None),
    ],
    ids=["of the content", "MD5", "encrypted", "of parts", "checksum of parts"],
)
def test_only_what_the_whole_content_gives_becomes_a_digest(
    result: dict[str, str], encryption: str, digest: str | None
):
    answer = {"CopyObjectResult": result, "ServerSideEncryption": encryption}
    assert digest_of_copy(answer) == digest
