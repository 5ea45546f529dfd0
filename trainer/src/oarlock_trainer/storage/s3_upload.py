"""Objects of any size into a bucket: small ones in one request, large ones in parts, never half of one.

An object is there once the service has all of it. What is given up half-way is aborted, so that no invisible parts are
paid for.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from oarlock_trainer.storage.s3_errors import S3_ERRORS, code_of
from oarlock_trainer.storage.service import client

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.storage.bucket import S3Bucket

PART_BYTES = 16 << 20
"""A part that fails is sent again as a whole: seconds, not minutes. Each part in flight is in memory."""
_MOST_PARTS = 10_000
_AT_ONCE = 4


def put(bucket: S3Bucket, key: str, *, size: int, part: Callable[[int, int], bytes]) -> None:
    """Create or replace the object `key` with `size` bytes; `part(start, length)` reads them, from several threads."""
    if size <= PART_BYTES:
        content = part(0, size)
        bucket.ask(lambda s3: s3.put_object(Bucket=bucket.name, Key=key, Body=content), doing="writing", name=key)
        return
    whose = {"Bucket": bucket.name, "Key": key}
    whose["UploadId"] = bucket.ask(
        lambda s3: s3.create_multipart_upload(**whose)["UploadId"], doing="writing", name=key
    )
    try:
        parts = _send(bucket, whose, size=size, part=part)
        bucket.ask(lambda s3: _complete(s3, whose, parts, size), doing="writing", name=key)
    except BaseException as error:
        _abort(bucket, whose, error)
        raise


def part_bytes(size: int) -> int:
    """Bytes of each part but the last: all alike, as R2 wants them, and not more of them than a service takes."""
    return max(PART_BYTES, -(-size // _MOST_PARTS))


def _send(
    bucket: S3Bucket, whose: dict[str, str], *, size: int, part: Callable[[int, int], bytes]
) -> list[dict[str, Any]]:
    length = part_bytes(size)

    def send(number: int) -> dict[str, Any]:
        start = (number - 1) * length
        content = part(start, min(length, size - start))
        answer = bucket.ask(
            lambda s3: s3.upload_part(**whose, PartNumber=number, Body=content), doing="writing", name=whose["Key"]
        )
        return {"PartNumber": number, "ETag": answer["ETag"]}

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="upload") as pool:
        parts = [pool.submit(send, number) for number in range(1, -(-size // length) + 1)]
        try:
            return [sent.result() for sent in parts]
        except BaseException:
            # What is being sent is still waited for: a part that came after the abort would stay.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _complete(s3: Any, whose: dict[str, str], parts: list[dict[str, Any]], size: int) -> None:
    try:
        s3.complete_multipart_upload(**whose, MultipartUpload={"Parts": parts})
    except S3_ERRORS as error:
        # An upload that was completed, and whose answer got lost, is unknown at the next try.
        if code_of(error) != "NoSuchUpload" or not _is_there(s3, whose, size):
            raise


def _is_there(s3: Any, whose: dict[str, str], size: int) -> bool:
    page = s3.list_objects_v2(Bucket=whose["Bucket"], Prefix=whose["Key"], MaxKeys=1)
    return [(one["Key"], one["Size"]) for one in page.get("Contents", ())] == [(whose["Key"], size)]


def _abort(bucket: S3Bucket, whose: dict[str, str], reason: BaseException) -> None:
    # One try: we are leaving, and the reason may be that the service is away.
    try:
        client(bucket.service).abort_multipart_upload(**whose)
    except S3_ERRORS as error:
        reason.add_note(f"An unfinished upload of {whose['Key']} stays in bucket {bucket.name}: {error}")
