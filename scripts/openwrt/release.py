# SPDX-License-Identifier: Apache-2.0
"""The parts of a release besides its packages: the sources, a bill of materials (SPDX 2.3), and checksums."""

import hashlib
import json
import pathlib
import re
import subprocess
import time
from typing import Any

from .binaries import WORK
from .recipe import REPO, Recipe, epoch

NAME = "bquic"
RECIPES = ("package/bquic-gateway", "package/wifirr-sched", "luci-app-bquic")

# Licences, by words that occur in no other licence.
LICENCES = {
    "Apache-2.0": "Apache License",
    "MIT": "Permission is hereby granted, free of charge",
    "BSD-3-Clause": "endorse or promote products derived",
}


def version() -> str:
    """The version in version.mk, which all packages have."""
    return Recipe(REPO / RECIPES[0] / "Makefile").version


def notes(changelog: str) -> str:
    """The first section of CHANGELOG.md. ValueError: it is about another version."""
    heading, _, rest = changelog.partition("\n## ")[2].partition("\n")
    if heading.split(" ")[0] != version():
        raise ValueError(f'CHANGELOG.md begins with "{heading}", version.mk says {version()}')
    return rest.partition("\n## ")[0].strip() + "\n"


def licence(text: str, what: str) -> str:
    """The SPDX identifier of a licence's text. ValueError: unknown, or more than one."""
    found = [name for name, words in LICENCES.items() if words in re.sub(r"\s+", " ", text)]
    if len(found) != 1:
        raise ValueError(f"{what}: a licence that is not known here: {found}")
    return found[0]


def go_modules(program: pathlib.Path) -> list[dict[str, str]]:
    """The modules in a Go program, from its build information, each with its licence from the module cache."""
    said = subprocess.check_output(["go", "version", "-m", program], text=True)
    modules = [{"name": "go", "version": re.findall(r": go(\S+)", said)[0], "licence": "BSD-3-Clause"}]
    source = REPO / RECIPES[0] / "src"
    for path, number in re.findall(r"^\tdep\t(\S+)\t(\S+)", said, re.M):
        found = json.loads(subprocess.check_output(["go", "list", "-m", "-json", path], cwd=source, text=True))
        [text] = [p for p in pathlib.Path(found["Dir"]).iterdir() if p.name in ("LICENSE", "LICENSE.md", "COPYING")]
        modules.append({"name": path, "version": number, "licence": licence(text.read_text(), path)})
    return modules


def bill(out: pathlib.Path, arches: list[str]) -> dict[str, Any]:
    """The components of each package of a release, and its dependencies on the router."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch()))
    packages: list[dict[str, Any]] = []
    relations: list[dict[str, str]] = []

    def identifier(name: str) -> str:
        return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]+", "-", name)

    def package(name: str, number: str, said: str, purl: str, file: pathlib.Path | None = None) -> str:
        one = identifier(str(file.relative_to(out)) if file else f"{name}-{number}")
        if one not in {p["SPDXID"] for p in packages}:
            packages.append({
                "SPDXID": one, "name": name, "versionInfo": number, "downloadLocation": "NOASSERTION",
                "licenseConcluded": said, "licenseDeclared": said, "copyrightText": "NOASSERTION", "filesAnalyzed": False,
                **({"externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]} if purl else {}),
                **({"packageFileName": str(file.relative_to(out)),
                    "checksums": [{"algorithm": "SHA256", "checksumValue": sha256(file)}]} if file else {}),
            })
        return one

    def relate(one: str, how: str, other: str) -> None:
        relations.append({"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other})

    recipes = {r.name: r for r in (Recipe(REPO / path / "Makefile") for path in RECIPES)}
    for arch in arches:
        modules = go_modules(WORK / arch / "bquic")
        for file in sorted((out / arch).glob("*.[ia]pk")):
            name = file.name.partition("_")[0] if file.suffix == ".ipk" else file.name.removesuffix(f"-{recipes['bquic-gateway'].release}.apk")
            inside = modules if name == "bquic-gateway" else []
            one = package(name, version(), " AND ".join(sorted({"Apache-2.0", *(m["licence"] for m in inside)})), "", file)
            relate("SPDXRef-DOCUMENT", "DESCRIBES", one)
            for need in recipes[name].depends() if name in recipes else []:
                relate(one, "DEPENDS_ON", package(need, "NOASSERTION", "NOASSERTION", ""))
            for module in inside:
                purl = f"pkg:golang/{module['name']}@{module['version']}" if module["name"] != "go" else ""
                relate(one, "CONTAINS", package(module["name"], module["version"], module["licence"], purl))
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"{NAME}-{version()}",
        "documentNamespace": f"urn:{NAME}:{version()}:{hashlib.sha256(json.dumps(packages).encode()).hexdigest()}",
        "creationInfo": {"created": created, "creators": ["Organization: bquic maintainers"]},
        "packages": packages, "relationships": relations,
    }


def sha256(file: pathlib.Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def complete(out: pathlib.Path, arches: list[str]) -> None:
    """Completes the feed in OUT to a release. The source is the last commit."""
    source = out / f"{NAME}-{version()}.tar.gz"
    subprocess.run(["git", "archive", "--format=tar.gz", f"--prefix={NAME}-{version()}/", "-o", source, "HEAD"], cwd=REPO, check=True)
    (out / "NOTES.md").write_text(notes((REPO / "CHANGELOG.md").read_text()))
    (out / f"{NAME}-{version()}.spdx.json").write_text(json.dumps(bill(out, arches), indent=1) + "\n")
    sums = out / "SHA256SUMS"
    sums.unlink(missing_ok=True)
    files = sorted(p for p in out.rglob("*") if p.is_file())
    sums.write_text("".join(f"{sha256(p)}  {p.relative_to(out)}\n" for p in files))
