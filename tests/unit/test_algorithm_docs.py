"""The pages under ``docs/algorithms`` name every algorithm and setting, and what they refer to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentgym_lite.algorithms import ALGORITHMS
from agentgym_lite.config.algorithms import ALGORITHM_CONFIGS, GroupConfig, PolicyGradientConfig
from agentgym_lite.config.base import Strict
from agentgym_lite.config.methods import (
    AgentEvolConfig,
    DPOSection,
    EpochsRunConfig,
    EvolSection,
    ExploreConfig,
    FilterConfig,
    HeldOutDataConfig,
    HeldOutRunConfig,
    PairDataConfig,
    ScheduledOptimConfig,
)
from agentgym_lite.config.run import CommonRunConfig, LoraConfig, OptimConfig, RoundsConfig
from agentgym_lite.probes import PROBES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "algorithms"
PAGES = sorted(p for p in DOCS.glob("*.md") if p.name not in ("README.md", "metrics.md", "custom.md"))
#: Page of each algorithm.
PAGE_OF = {
    "grpo": "grpo",
    "ppo": "ppo",
    "rloo": "rloo",
    "reinforce_pp": "reinforce_pp",
    "reinforce_pp_baseline": "reinforce_pp",
    "gigpo": "gigpo_turn_level",
}


def own_fields(cls: type[Strict], *bases: type[Strict]) -> set[str]:
    return set(cls.model_fields) - {f for b in bases for f in b.model_fields} - {"name", "method"}


#: Page -> settings that it must name.
SETTINGS: dict[str, set[str]] = {
    "options": own_fields(PolicyGradientConfig) | own_fields(GroupConfig) | own_fields(LoraConfig),
    "scaling_inter": set(RoundsConfig.model_fields),
    "sft": own_fields(HeldOutDataConfig) | own_fields(ScheduledOptimConfig, OptimConfig) | own_fields(HeldOutRunConfig, CommonRunConfig),
    "dpo": own_fields(PairDataConfig) | own_fields(DPOSection) | own_fields(HeldOutRunConfig, CommonRunConfig) | {"samples", "rollout"},
    "agentevol": own_fields(EvolSection)
    | own_fields(ExploreConfig)
    | own_fields(FilterConfig)
    | own_fields(EpochsRunConfig, CommonRunConfig)
    | own_fields(AgentEvolConfig) - {"model", "agent"},
}
for _name, _cls in ALGORITHM_CONFIGS.items():
    _page = SETTINGS.setdefault(PAGE_OF[_name], set())
    _page |= (
        own_fields(_cls, PolicyGradientConfig) | {"group_size"} if issubclass(_cls, GroupConfig) else own_fields(_cls, PolicyGradientConfig)
    )


def text(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def names_in_code(page: str) -> set[str]:
    """Words inside back-ticks; a dotted name counts by its last part too."""
    spans = re.findall(r"`([^`]+)`", text(page))
    return {part for span in spans for part in re.findall(r"\w+", span)}


def test_every_algorithm_has_a_page_that_names_it() -> None:
    assert set(PAGE_OF) == set(ALGORITHMS) == set(ALGORITHM_CONFIGS)
    assert all(name in names_in_code(page) for name, page in PAGE_OF.items())
    assert all(name in names_in_code("options") for name in ALGORITHMS)


@pytest.mark.parametrize("page", sorted(SETTINGS))
def test_every_setting_is_on_its_page(page: str) -> None:
    assert SETTINGS[page] - names_in_code(page) == set()


def test_every_choice_of_a_setting_is_on_the_options_page() -> None:
    choices = {
        "clip",
        "gspo",
        "cispo",
        "k1",
        "k2",
        "k3",
        "token_mean",
        "seq_mean_token_mean",
        "seq_mean_token_sum_norm",
        "drop",
        "resample",
    }
    assert choices - names_in_code("options") == set()


def test_the_index_links_every_page_and_names_every_probe() -> None:
    links = set(re.findall(r"\]\((\w+\.md)\)", text("README")))
    assert {p.name for p in DOCS.glob("*.md")} - {"README.md"} == links
    assert all(f"`{name}`" in text("README") for name in PROBES)


@pytest.mark.parametrize("page", [p.stem for p in PAGES])
def test_a_page_has_its_parts(page: str) -> None:
    content = text(page)
    if page in ("options", "upstream_faults"):
        parts = ["## "]
    else:
        parts = [
            "What is masked",
            "Metrics to watch",
            "metrics.md",
            "## Details",
            "\n1. ",
            "## Differences",
            "## Results",
            "    agl ",
        ]
    assert [p for p in parts if p not in content] == []


@pytest.mark.parametrize("page", ["README", *(p.stem for p in PAGES)])
def test_references_lead_somewhere(page: str) -> None:
    content = text(page)
    missing = [link for link in re.findall(r"\]\(([^)#:]+)\)", content) if not (DOCS / link).exists()]
    for file, name in re.findall(r"`(\w[\w/]*\.py):([A-Za-z_]\w*)`", content):
        source = ROOT / "agentgym_lite" / file
        if not source.is_file() or not re.search(
            rf"^(?:def|class) {name}\b|^{name}\b.*=", source.read_text(encoding="utf-8"), re.MULTILINE
        ):
            missing.append(f"{file}:{name}")
    paths = re.findall(r"(?:configs|scripts|benchmarks|tests)/[\w/]+\.(?:yaml|py)", content)
    assert missing + [p for p in paths if not (ROOT / p).exists()] == []
