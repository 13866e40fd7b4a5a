"""Every name that a deployment uses, from its own name, the account and the region."""

from dataclasses import dataclass

WEIGHTS_PREFIX = "weights/"
SOURCE_PREFIX = "source/"


@dataclass(frozen=True)
class Names:
    deployment: str
    region: str
    account: str
    partition: str

    @property
    def bucket(self) -> str:  # bucket names are one space for all accounts and regions
        return f"{self.deployment}-{self.account}-{self.region}"

    @property
    def role(self) -> str:  # role names are one space for all regions
        return f"{self.deployment}-{self.region}-endpoint"

    @property
    def build_role(self) -> str:
        return f"{self.deployment}-{self.region}-build"

    @property
    def repository(self) -> str:
        return self.deployment

    @property
    def registry(self) -> str:
        suffix = "amazonaws.com.cn" if self.partition == "aws-cn" else "amazonaws.com"
        return f"{self.account}.dkr.ecr.{self.region}.{suffix}"

    @property
    def project(self) -> str:
        return f"{self.deployment}-build"

    @property
    def endpoint(self) -> str:
        return self.deployment

    @property
    def versions_prefix(self) -> str:
        """What the names of models and endpoint configs begin with; a hash of the content follows."""
        return f"{self.deployment}-"

    @property
    def rollback_alarms(self) -> tuple[str, str]:
        return f"{self.deployment}-server-errors", f"{self.deployment}-first-audio"

    @property
    def saturated_alarm(self) -> str:
        return f"{self.deployment}-saturated"

    @property
    def idle_alarm(self) -> str:
        return f"{self.deployment}-idle"

    @property
    def alarms(self) -> tuple[str, ...]:
        return (*self.rollback_alarms, self.saturated_alarm, self.idle_alarm)

    @property
    def log_groups(self) -> tuple[str, ...]:
        """Those that AWS makes by itself."""
        return (f"/aws/sagemaker/Endpoints/{self.endpoint}", f"/aws/codebuild/{self.project}")

    def arn(self, service: str, resource: str) -> str:
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"

    def role_arn(self, role: str) -> str:
        return f"arn:{self.partition}:iam::{self.account}:role/{role}"

    def bucket_arn(self, path: str = "") -> str:
        return f"arn:{self.partition}:s3:::{self.bucket}{path}"
