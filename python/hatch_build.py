"""Names the machines that the wheel is for. The binary is static: it runs with glibc, musl and neither."""

from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TAG = "py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"


class Tag(BuildHookInterface):
    def initialize(self, version, build_data):
        if not (Path(self.root) / "bin/vswap").exists():
            raise SystemExit("no bin/vswap beside pyproject.toml: build the wheel with `cargo xtask dist`")
        build_data["pure_python"] = False
        build_data["tag"] = TAG
