# SPDX-License-Identifier: Apache-2.0
import pathlib

import pytest

from harness import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory of a site with files."""
    return tmp_path_factory.mktemp("site")
