"""One private bucket: weights below prefixes named by their content, and what is uploaded to be built."""

import base64
from typing import Any

from botocore.exceptions import ClientError

from deploy.aws.found import MISSING, Found, different, foreign
from deploy.aws.session import Aws, error_code
from deploy.progress import say
from deploy.resources import Bucket, Files, LocalFile

_PRIVATE = {
    "BlockPublicAcls": True,
    "IgnorePublicAcls": True,
    "BlockPublicPolicy": True,
    "RestrictPublicBuckets": True,
}


def look_at_bucket(aws: Aws, bucket: Bucket) -> Found:
    s3 = aws.client("s3")
    try:
        s3.head_bucket(Bucket=bucket.name, ExpectedBucketOwner=aws.account)
    except ClientError as exc:
        if error_code(exc) in {"404", "NoSuchBucket"}:
            return MISSING
        raise
    tags = _tags(aws, bucket.name)
    if not tags and not s3.list_objects_v2(Bucket=bucket.name, MaxKeys=1).get("KeyCount"):
        return different("empty and without a tag, as an interruption leaves it")
    if not aws.owns(tags):
        return foreign(f"the bucket {bucket.name}")
    return different(*([] if _is_private(aws, bucket.name) else ["open to the public"]))


def put_bucket(aws: Aws, bucket: Bucket) -> None:
    s3 = aws.client("s3")
    # us-east-1 is the region that must not be named
    place = {} if aws.region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": aws.region}}
    try:
        s3.create_bucket(Bucket=bucket.name, **place)
    except ClientError as exc:
        if error_code(exc) != "BucketAlreadyOwnedByYou":
            raise
    s3.put_bucket_tagging(Bucket=bucket.name, Tagging={"TagSet": aws.tag_list})
    s3.put_public_access_block(Bucket=bucket.name, PublicAccessBlockConfiguration=_PRIVATE)


def remove_bucket(aws: Aws, name: str, keep_prefix: str | None = None, dry_run: bool = False) -> bool:
    """Empty and delete it; with `keep_prefix` those objects stay, and so does the bucket.

    Returns whether there was one of ours.
    """
    s3 = aws.client("s3")
    try:
        s3.head_bucket(Bucket=name, ExpectedBucketOwner=aws.account)
    except ClientError as exc:
        if error_code(exc) in {"404", "NoSuchBucket"}:
            return False
        raise
    tags = _tags(aws, name)
    if tags and not aws.owns(tags):
        return False
    keys = [key for key in _sizes(aws, name, "") if keep_prefix is None or not key.startswith(keep_prefix)]
    if not tags and keys:
        return False
    if dry_run:
        return True
    _delete(aws, name, keys)
    if keep_prefix is None:
        s3.delete_bucket(Bucket=name)
    return True


def look_at_files(aws: Aws, files: Files) -> Found:
    try:
        there = _sizes(aws, files.bucket, files.prefix)
    except ClientError as exc:
        if error_code(exc) == "NoSuchBucket":
            return MISSING
        raise
    if not there:
        return MISSING
    missing = [file for file in files.files if not _is_stored(aws, files, file, there)]
    strangers = _strangers(files, there)
    details = [f"{len(missing)} of {len(files.files)} files to upload"] if missing else []
    return different(*details, *[f"{key} does not belong there" for key in strangers])


def put_files(aws: Aws, files: Files) -> None:
    """Upload what is not there with the same SHA-256; take away what does not belong, folder objects above all."""
    s3 = aws.client("s3")
    there = _sizes(aws, files.bucket, files.prefix)
    for file in files.files:
        if _is_stored(aws, files, file, there):
            continue
        say(f"    {files.name}{file.name} ({file.size_bytes:,} bytes)")
        with open(file.path, "rb") as body:
            s3.put_object(
                Bucket=files.bucket,
                Key=files.prefix + file.name,
                Body=body,
                ChecksumAlgorithm="SHA256",
                ChecksumSHA256=_base64(file.sha256),  # S3 refuses a body with another one
            )
    _delete(aws, files.bucket, _strangers(files, there))


def _strangers(files: Files, there: dict[str, int]) -> list[str]:
    ours = {files.prefix + file.name for file in files.files}
    return [key for key in there if key not in ours]


def _is_stored(aws: Aws, files: Files, file: LocalFile, there: dict[str, int]) -> bool:
    key = files.prefix + file.name
    if there.get(key) != file.size_bytes:
        return False
    head = aws.client("s3").head_object(Bucket=files.bucket, Key=key, ChecksumMode="ENABLED")
    return bool(head.get("ChecksumSHA256") == _base64(file.sha256))


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()


def _sizes(aws: Aws, bucket: str, prefix: str) -> dict[str, int]:
    pages = aws.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", ())}


def _delete(aws: Aws, bucket: str, keys: list[str]) -> None:
    for start in range(0, len(keys), 1000):  # the most that one call takes
        batch = [{"Key": key} for key in keys[start : start + 1000]]
        aws.client("s3").delete_objects(Bucket=bucket, Delete={"Objects": batch, "Quiet": True})


def _tags(aws: Aws, bucket: str) -> Any:
    try:
        return aws.client("s3").get_bucket_tagging(Bucket=bucket)["TagSet"]
    except ClientError as exc:
        if error_code(exc) == "NoSuchTagSet":
            return []
        raise


def _is_private(aws: Aws, bucket: str) -> bool:
    try:
        block = aws.client("s3").get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
    except ClientError as exc:
        if error_code(exc) == "NoSuchPublicAccessBlockConfiguration":
            return False
        raise
    return bool(block == _PRIVATE)
