"""SearchQA: the shipped questions, their wording and their facts, and question files."""

import itertools
import json
import random
from collections import Counter, defaultdict
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_envs.core import UnknownItem
from agentgym_envs.searchqa import KINDS, PUBLISHED_RANGES, QuestionFiles, SearchQA, exact_match, published_task, shared_retriever
from agentgym_envs.searchqa.corpus import require_sources, sources_digest
from agentgym_envs.searchqa.grading import fold
from agentgym_envs.searchqa.index import corpus
from agentgym_envs.searchqa.questions import shipped
from agentgym_envs.searchqa.readers import canonical, days, same_name
from agentgym_envs.searchqa.relations import RELATIONS
from agentgym_envs.searchqa.wording import Ask, Compare, Has, Of, Which, read, write

PASSAGES = {p.id: p for p in corpus()}
ITEMS = shipped().items


def entities(item):
    """Folded names of the countries that an item's gold passages are about; a city's country is the one its passage names."""
    for gold in item.gold:
        p = PASSAGES[gold]
        yield fold(RELATIONS["city_country"].read(p.text)[0] if gold.startswith("gz/") else p.title.partition(": ")[0])


def test_counts_of_the_suite():
    counts = Counter((i.split, i.kind) for i in ITEMS)
    assert {k: counts["eval", k] for k in KINDS} == dict.fromkeys(KINDS, 50) | {"musique": 100}
    assert sum(n for (split, _), n in counts.items() if split == "train") >= 2000
    assert all(counts["train", k] >= 250 for k in KINDS)
    assert [SearchQA.task_of(i) for i in SearchQA.items("eval")[:50]] == ["nq"] * 50


def test_version_names_the_questions():
    assert SearchQA.version.endswith(shipped().version)


def test_the_corpus_is_the_one_that_the_questions_were_checked_against():
    require_sources()
    data = json.loads((resources.files("agentgym_envs.searchqa") / "questions.json").read_text(encoding="utf-8"))
    assert data["corpus"] == sources_digest()


def test_gold_passages_exist_and_hold_the_answer():
    hops = {"nq": {1}, "triviaqa": {1}, "popqa": {1}, "hotpotqa": {2}, "2wiki": {2}, "musique": {3, 4}, "bamboogle": {2}}
    for item in ITEMS:
        assert len(item.gold) in hops[item.kind], item
        assert len(set(item.gold)) == len(item.gold), item
        texts = [fold(f"{PASSAGES[g].title} {PASSAGES[g].text}") for g in item.gold]
        held = texts if isinstance(read(item.question), Compare) else texts[-1:]
        assert any(fold(answer) in text for answer in item.answers for text in held), item


def test_bamboogle_needs_both_corpora():
    assert all({g[:2] for g in i.gold} == {"fb", "gz"} for i in ITEMS if i.kind == "bamboogle")


def test_splits_share_no_question_passage_or_country():
    seen = defaultdict(set)
    for item in ITEMS:
        seen["question", item.split].add(item.question)
        seen["passage", item.split].update(item.gold)
        seen["country", item.split].update(entities(item))
    assert len({i.question for i in ITEMS}) == len(ITEMS)
    for what in ("question", "passage", "country"):
        assert seen[what, "train"]
        assert not seen[what, "train"] & seen[what, "eval"], what


def test_no_question_gives_its_answer_away():
    for item in ITEMS:
        if not isinstance(read(item.question), Compare):
            assert exact_match(item.answers[0], [item.question]) == 0.0
            assert f" {fold(item.answers[0])} " not in f" {fold(item.question)} ", item


def test_descriptions_fit_one_country_by_the_text_of_all_passages():
    """Independent of the builder: nobody else's passage of that field mentions the value."""
    texts = defaultdict(list)
    for p in PASSAGES.values():
        if p.id.startswith("fb/"):
            texts[p.title.partition(": ")[2]].append(fold(p.text))

    def described(node):
        if isinstance(node, Has | Which):
            yield RELATIONS[node.relation].field, node.value
        elif not isinstance(node, str | Compare):
            yield from described(node.subject)

    values = {pair for item in ITEMS for pair in described(read(item.question))}
    assert len(values) > 400
    assert [(f, v) for f, v in values if sum(fold(v) in t for t in texts[f]) != 1] == []


def test_favourite_answers_do_not_pay():
    for kind in KINDS:
        answers = Counter(i.answers[0] for i in ITEMS if i.split == "eval" and i.kind == kind)
        assert answers.most_common(1)[0][1] <= 0.1 * answers.total()


def test_wordings_vary():
    for name, relation in RELATIONS.items():
        assert len(relation.asks) >= 2, name
        assert len(set(relation.asks)) == len(relation.asks)
    opening = Counter(" ".join(i.question.split()[:4]) for i in ITEMS)
    assert len(opening) > 300


@given(st.data())
def test_a_question_is_read_back_in_every_wording(data):
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    edges = [r.name for r in RELATIONS.values() if r.follows]
    clues = [r.name for r in RELATIONS.values() if r.clues]
    subject = data.draw(st.sampled_from(["Chile", "United Kingdom", "Côte d'Ivoire", Has(rng.choice(clues), "Xa Ybe"), "Cook Islands"]))
    for _ in range(data.draw(st.integers(0, 2))):
        subject = Of(rng.choice(edges), subject)
    question = Ask(rng.choice(list(RELATIONS)), subject)
    assert read(write(question, rng.choice)) == question


def test_other_words_are_not_understood():
    assert read("Tell me something nice") is None
    assert read("What is the capital of the thing over there?") is None


@pytest.mark.parametrize(
    ("relation", "text", "reading"),
    [
        ("capital", "name: Lima | time difference: UTC-5", ("Lima",)),
        ("capital", "name: Mbabane (administrative capital); Lobamba (royal capital)", ()),
        ("capital", "name: Washington, DC | x", ()),
        ("highest_point", "highest point: Fan Si Pan 3,144 m | lowest point: South China Sea 0 m", ("Fan Si Pan",)),
        ("highest_point", "highest point: Baker Island, unnamed location 8 m; Howland Island 3 m", ()),
        ("elevation", "highest point: Fan Si Pan 3,144 m | lowest point: x 0 m", ("3,144 m", "3,144", "3,144 meters", "3,144 metres")),
        ("anthem", 'title: "Maamme" (Our Land) | lyrics/music: x', ("Maamme", "Our Land")),
        ("anthem_music", "lyrics/music: Juan GARRO/Jose REINA | history: x", ("Jose REINA",)),
        ("anthem_music", "lyrics/music: unknown/traditional | history: x", ()),
        ("independence", "5 July 1811 (from Spain)", ("5 July 1811", "July 5 1811")),
        ("independence", "20 May 1902 (from US administration); 10 December 1898 (from Spain)", ()),
        ("independence_from", "7 July 1978 (from the UK)", ("United Kingdom", "UK")),
        ("independence_from", "3 October 1932 (from League of Nations mandate under British administration)", ()),
        ("holiday", "Independence Day, 4 July (1776)", ("4 July", "July 4")),
        ("longest_border", "total: 9 km | border countries: Chile 2 km; Peru 7 km", ("Peru",)),
        ("longest_border", "total: 9 km | border countries: Peru 9 km", ()),
        ("longest_border", "border countries: Niger 838 km, Senegal 489 km; Mali 2 km", ()),
        ("only_neighbour", "border countries: UK 499 km", ("United Kingdom", "UK")),
        ("export_partner", "USA 49%, Japan 19%, China 7% (2023)", ("United States", "USA", "US")),
        ("export_partner", "Japan 19%, China 19% (2023)", ()),
        ("largest_city", "231,000 YAMOUSSOUKRO (capital) (2018), 5.686 million ABIDJAN (seat of government) (2023)", ("Abidjan",)),
        ("largest_city", "682,000 Macau (2023)", ()),
        ("city_country", "Kumba is a city in Cameroon (Africa). Population: 5.", ("Cameroon",)),
    ],
)
def test_readings_by_hand(relation, text, reading):
    assert RELATIONS[relation].read(text) == reading


def test_names_and_dates_compare():
    assert same_name("the USA", "United States")
    assert same_name("Cote d'Ivoire", "Côte d'Ivoire")
    assert not same_name("Guinea", "Guinea-Bissau")
    assert canonical("the Bahamas") == "Bahamas"
    assert days("31 December 1979") < days("1 January 1980") < days("2 January 1980")


@pytest.mark.slow
def test_retrieval_finds_gold_by_the_question_alone():
    """One search with the question itself, top 3: enough for most single facts, not for several hops."""
    recall = {kind: _recall(kind) for kind in ("bm25", "dense")}
    for kind, floors in {"bm25": {"nq": 0.7, "triviaqa": 0.95, "popqa": 0.9}, "dense": {"nq": 0.6, "triviaqa": 0.85, "popqa": 0.9}}.items():
        for task, floor in floors.items():
            assert recall[kind][task] >= floor, (kind, task, recall[kind][task])
        assert recall[kind]["musique"] < 0.4


def _recall(kind):
    found, total = Counter(), Counter()
    retriever = shared_retriever(kind)
    for item in ITEMS:
        if item.split == "eval":
            hits = {h.passage.id for h in retriever.search(item.question, 3)}
            found[item.kind] += sum(g in hits for g in item.gold)
            total[item.kind] += len(item.gold)
    return {k: found[k] / total[k] for k in total}


def test_published_ranges_have_no_gaps():
    assert PUBLISHED_RANGES[0][3] == 0
    assert all(a[4] + 1 == b[3] for a, b in itertools.pairwise(PUBLISHED_RANGES))
    assert sum(last - first + 1 for *_, split, first, last in PUBLISHED_RANGES if split == "train") == 169_615
    assert [published_task(i) for i in (0, 3609, 3610, 51_712, 51_713, 221_327)] == ["nq", "nq", "triviaqa", "bamboogle", "nq", "hotpotqa"]
    with pytest.raises(UnknownItem):
        published_task(221_328)


def write_rows(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")


def test_question_folder_under_published_numbers(tmp_path):
    write_rows(tmp_path / "nq" / "train.jsonl", {"question": "who", "golden_answers": ["a"]})
    write_rows(tmp_path / "nq" / "test.jsonl", *({"question": f"q{i}", "golden_answers": [str(i)]} for i in range(3)))
    write_rows(tmp_path / "musique" / "dev.jsonl", {"question": "m?", "golden_answers": ["x", "y"]})
    files = QuestionFiles(tmp_path)
    assert (files.item(2).question, files.item(2).answers, files.item(2).kind) == ("q2?", ("2",), "nq")
    assert (files.item(49_171).question, files.item(49_171).kind) == ("m?", "musique")
    assert files.item(51_713).split == "train"
    with pytest.raises(UnknownItem, match="found only 3 rows"):
        files.item(3)
    with pytest.raises(UnknownItem, match=r"popqa/test\.jsonl"):
        files.item(14_923)


def test_single_question_file(tmp_path):
    path = tmp_path / "mine.jsonl"
    write_rows(path, {"question": "Where?", "golden_answers": ["here"], "data_source": "popqa"})
    assert QuestionFiles(path).item(0).kind == "popqa"
    with pytest.raises(UnknownItem, match="from 0 to 0"):
        QuestionFiles(path).item(1)
    path.write_text('{"question": "Where?"}\n')
    with pytest.raises(ValueError, match="line 1: expected 'question'"):
        QuestionFiles(path).item(0)
    with pytest.raises(FileNotFoundError, match="found nothing"):
        QuestionFiles(tmp_path / "none")
