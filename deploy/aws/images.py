"""The container image: an ECR repository, and the two ways to fill it, docker here or CodeBuild."""

import base64
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from deploy.aws.found import MISSING, SAME, Found, differences, different, foreign
from deploy.aws.roles import once_role_is_known
from deploy.aws.session import Aws, error_code
from deploy.errors import DeployError
from deploy.names import SOURCE_PREFIX
from deploy.progress import say
from deploy.resources import BuildProject, Image, LocalFile, Repository

_BUILD_POLL_S = 10
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of every file in a bundle: the same sources are the same bytes


def look_at_repository(aws: Aws, repository: Repository) -> Found:
    there = _repository(aws, repository.name)
    if there is None:
        return MISSING
    if not _owns_repository(aws, there):
        return foreign(f"the ECR repository {repository.name}")
    details = [] if there["imageTagMutability"] == "IMMUTABLE" else ["its tags can be moved"]
    if _lifecycle(aws, repository.name) != _lifecycle_policy(repository):
        details.append("another number of images stays")
    return different(*details)


def put_repository(aws: Aws, repository: Repository) -> None:
    ecr = aws.client("ecr")
    if _repository(aws, repository.name) is None:
        ecr.create_repository(repositoryName=repository.name, imageTagMutability="IMMUTABLE", tags=aws.tag_list)
    else:
        ecr.put_image_tag_mutability(repositoryName=repository.name, imageTagMutability="IMMUTABLE")
    ecr.put_lifecycle_policy(
        repositoryName=repository.name, lifecyclePolicyText=json.dumps(_lifecycle_policy(repository))
    )


def remove_repository(aws: Aws, name: str, dry_run: bool = False) -> bool:
    """With its images. Returns whether there was one of ours."""
    there = _repository(aws, name)
    if there is None or not _owns_repository(aws, there):
        return False
    if not dry_run:
        aws.client("ecr").delete_repository(repositoryName=name, force=True)
    return True


def look_at_project(aws: Aws, project: BuildProject) -> Found:
    there = _project(aws, project.name)
    if there is None:
        return MISSING
    if not aws.owns(there.get("tags", [])):
        return foreign(f"the CodeBuild project {project.name}")
    wanted, actual = _project_fields(project), dict(there)
    for section in ("source", "environment"):  # AWS adds fields of its own
        actual[section] = {key: value for key, value in there.get(section, {}).items() if key in wanted[section]}
    return different(*[difference.split(" is ")[0] for difference in differences(wanted, actual)])


def put_project(aws: Aws, project: BuildProject) -> None:
    codebuild, tags = aws.client("codebuild"), [{"key": key, "value": value} for key, value in aws.tags.items()]
    known = _project(aws, project.name) is not None
    put = codebuild.update_project if known else codebuild.create_project
    once_role_is_known(aws, lambda: put(name=project.name, tags=tags, **_project_fields(project)))


def remove_project(aws: Aws, name: str, dry_run: bool = False) -> bool:
    there = _project(aws, name)
    if there is None or not aws.owns(there.get("tags", [])):
        return False
    if not dry_run:
        aws.client("codebuild").delete_project(name=name)
    return True


def look_at_image(aws: Aws, image: Image) -> Found:
    try:
        aws.client("ecr").describe_images(repositoryName=image.repository, imageIds=[{"imageTag": image.tag}])
    except ClientError as exc:
        if error_code(exc) in {"ImageNotFoundException", "RepositoryNotFoundException"}:
            return MISSING
        raise
    return SAME


def put_image(aws: Aws, image: Image) -> None:
    """Build and push it. Raises DeployError: the build fails."""
    if image.builder == "docker":
        _build_here(aws, image)
    else:
        _build_there(aws, image)
    if look_at_image(aws, image) == MISSING:
        raise DeployError(f"the build ended, but {image.uri} is not in the repository")


def _build_here(aws: Aws, image: Image) -> None:
    token = aws.client("ecr").get_authorization_token()["authorizationData"][0]["authorizationToken"]
    user, _, password = base64.b64decode(token).decode().partition(":")
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(io.BytesIO(_bundle(image.sources))).extractall(folder)
        _docker(["login", "--username", user, "--password-stdin", image.uri.partition("/")[0]], Path(folder), password)
        _docker(["build", "--platform", "linux/amd64", "--provenance=false", "--tag", image.uri, "."], Path(folder))
        _docker(["push", image.uri], Path(folder))


def _docker(arguments: list[str], folder: Path, stdin: str = "") -> None:
    done = subprocess.run(["docker", *arguments], cwd=folder, input=stdin, text=True, stdout=sys.stderr)
    if done.returncode != 0:
        raise DeployError(f"`docker {arguments[0]}` failed with exit status {done.returncode}; its output is above")


def _build_there(aws: Aws, image: Image) -> None:
    codebuild = aws.client("codebuild")
    build = _running_build(aws, image)
    if build is None:
        aws.client("s3").put_object(Bucket=image.bucket, Key=image.bundle_key, Body=_bundle(image.sources))
        build = codebuild.start_build(
            projectName=image.project,
            sourceLocationOverride=f"{image.bucket}/{image.bundle_key}",
            environmentVariablesOverride=[{"name": "IMAGE", "value": image.uri, "type": "PLAINTEXT"}],
        )["build"]
    say(f"    build {build['id']}, usually 10 to 20 minutes")
    phase = ""
    while build["buildStatus"] == "IN_PROGRESS":  # the project's own timeout ends it
        if build.get("currentPhase", "") != phase:
            phase = build.get("currentPhase", "")
            say(f"    build: {phase}")
        aws.pause(_BUILD_POLL_S)
        build = codebuild.batch_get_builds(ids=[build["id"]])["builds"][0]
    if build["buildStatus"] != "SUCCEEDED":
        link = (build.get("logs") or {}).get("deepLink", "the CodeBuild console")
        raise DeployError(f"the image's build ended with {build['buildStatus']}; its log is at {link}")


def _running_build(aws: Aws, image: Image) -> Any:
    """A build of this image that an interrupted command has left running."""
    codebuild = aws.client("codebuild")
    ids = codebuild.list_builds_for_project(projectName=image.project, sortOrder="DESCENDING")["ids"][:5]
    for build in codebuild.batch_get_builds(ids=ids)["builds"] if ids else []:
        variables = {
            item["name"]: item["value"] for item in build.get("environment", {}).get("environmentVariables", [])
        }
        if build["buildStatus"] == "IN_PROGRESS" and variables.get("IMAGE") == image.uri:
            return build
    return None


def _bundle(sources: tuple[LocalFile, ...]) -> bytes:
    """The sources as a zip."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle:
        for source in sources:
            entry = zipfile.ZipInfo(source.name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            bundle.writestr(entry, source.path.read_bytes())
    return file.getvalue()


def _repository(aws: Aws, name: str) -> Any:
    try:
        return aws.client("ecr").describe_repositories(repositoryNames=[name])["repositories"][0]
    except ClientError as exc:
        if error_code(exc) == "RepositoryNotFoundException":
            return None
        raise


def _owns_repository(aws: Aws, repository: Any) -> bool:
    return aws.owns(aws.client("ecr").list_tags_for_resource(resourceArn=repository["repositoryArn"])["tags"])


def _lifecycle(aws: Aws, name: str) -> Any:
    try:
        return json.loads(aws.client("ecr").get_lifecycle_policy(repositoryName=name)["lifecyclePolicyText"])
    except ClientError as exc:
        if error_code(exc) == "LifecyclePolicyNotFoundException":
            return None
        raise


def _lifecycle_policy(repository: Repository) -> dict[str, Any]:
    selection = {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": repository.keep_images}
    return {"rules": [{"rulePriority": 1, "selection": selection, "action": {"type": "expire"}}]}


def _project(aws: Aws, name: str) -> Any:
    return next(iter(aws.client("codebuild").batch_get_projects(names=[name])["projects"]), None)


def _project_fields(project: BuildProject) -> dict[str, Any]:
    return {
        "serviceRole": project.role_arn,
        "source": {
            "type": "S3",
            "location": f"{project.bucket}/{SOURCE_PREFIX}none.zip",  # every build names its own
            "buildspec": project.buildspec,
        },
        "artifacts": {"type": "NO_ARTIFACTS"},
        "environment": {
            "type": "LINUX_CONTAINER",
            "image": "aws/codebuild/standard:7.0",
            "computeType": "BUILD_GENERAL1_LARGE",  # room for several gigabytes of packages, twice
            "privilegedMode": True,  # docker inside
        },
        "timeoutInMinutes": project.timeout_minutes,
    }
