"""Families of tokenizers and chat templates: what a prompt is, and what ends a response."""

import functools
import re
import tomllib
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rollwise.engines.ends import end_of_turn, end_tokens, text_of
from rollwise.models.encoding import encode_conversation, turn_encoder

LETTERS = sorted({*map(chr, range(33, 127)), "▁"})


def byte_level():
    found = Tokenizer(models.BPE({c: i for i, c in enumerate(byte_alphabet())}, []))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    return found


def byte_alphabet():
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def unigram(prepend="always"):
    found = Tokenizer(models.Unigram([("?", 0.0), *((c, -3.0) for c in ["\n", *LETTERS])], 0))
    found.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend)
    found.decoder = decoders.Metaspace(prepend_scheme=prepend)
    return found


def byte_fallback():
    """As Llama 2's: unknown characters are bytes, and a text begins with a space."""
    names = [*(f"<0x{byte:02X}>" for byte in range(256)), *LETTERS]
    found = Tokenizer(models.BPE({c: i for i, c in enumerate(names)}, [], byte_fallback=True))
    found.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    strip = [decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    found.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), *strip])
    return found


def word_piece():
    names = ["[UNK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    found = Tokenizer(models.WordPiece({c: i for i, c in enumerate(names)}, unk_token="[UNK]"))
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.decoder = decoders.WordPiece()
    return found


KINDS = {
    "byte level": byte_level,
    "unigram": unigram,
    "unigram without a first space": lambda: unigram("never"),
    "byte fallback": byte_fallback,
    "word piece": word_piece,
}


def make_tokenizer(kind, end, begin="", texts=(), template=None):
    """Put `begin` before any plain text and `end` behind it, as some tokenizers do."""
    found = KINDS[kind]()
    special = [each for each in (begin, end) if each]
    found.add_special_tokens([*special, *re.findall(r"<\S+?>|\[[A-Z]+\]", " ".join(texts))])
    around = [(token, found.token_to_id(token)) for token in {*special}]
    form = " ".join([begin, "$A", end]).strip()
    found.post_processor = processors.TemplateProcessing(form, None, around)
    return PreTrainedTokenizerFast(tokenizer_object=found, eos_token=end, chat_template=template)


FAMILIES = tomllib.loads(Path(__file__).with_name("templates.toml").read_text(encoding="utf-8"))


def template_of(begin, user, model, opening):
    content = "{{ message['content'] }}"
    return (
        f"{begin}{{% for message in messages %}}{{% if message['role'] == 'user' %}}"
        f"{user.replace('{}', content)}{{% else %}}{model.replace('{}', content)}{{% endif %}}"
        f"{{% endfor %}}{{% if add_generation_prompt %}}{opening}{{% endif %}}"
    )


def converse(*texts):
    roles = ("user", "assistant", "user")
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_opens_the_answer_and_what_closes_a_turn_ends_a_response(family, kind):
    """After the model's turn, an environment's words are as the template renders them."""
    begin, user, model, opening, end, further = FAMILIES[family].values()
    template = template_of(begin, user, model, opening)
    tokenizer = make_tokenizer(kind, end, "<s>", (begin, user, model, opening, *further), template)
    opened = begin + user.format("2+2") + opening.removesuffix(end)
    encode = functools.partial(tokenizer.encode, add_special_tokens=False)
    assert encode_conversation(tokenizer, converse("2+2")) == encode(opened)
    ends = end_tokens(None, tokenizer)
    assert ends == {*tokenizer.convert_tokens_to_ids([end, *further])}
    for last in ends:
        assert text_of(tokenizer, [*encode("4"), last], ends).strip() == "4"
    said = turn_encoder(tokenizer, ends)("no")
    whole = encode_conversation(tokenizer, converse("2+2", "4", "no"))
    assert whole[-len(said) :] == said
    if (turn := end_of_turn(tokenizer)) is not None:
        assert whole[-len(said) - 1] == turn


@pytest.mark.parametrize("kind", KINDS)
def test_plain_text_keeps_what_begins_it_and_not_what_ends_it(kind):
    tokenizer = make_tokenizer(kind, "</s>", "<s>")
    own = tokenizer.encode("2+2", add_special_tokens=False)
    assert tokenizer.encode("2+2")[-1] == tokenizer.eos_token_id
    begin = tokenizer.convert_tokens_to_ids("<s>")
    assert encode_conversation(tokenizer, converse("2+2")) == [begin, *own]


def test_a_token_that_is_not_special_can_close_a_turn():
    template = template_of("", "[U]{}", "[M]{}[E]", "[M]")
    tokenizer = make_tokenizer("byte level", "</s>", template=template)
    tokenizer.add_tokens(["[E]", "[E"])
    turn = tokenizer.convert_tokens_to_ids("[E]")
    assert end_of_turn(tokenizer) == turn
    assert text_of(tokenizer, [*tokenizer.encode("4")[:-1], turn], {turn}) == "4"
    tokenizer.chat_template = "{{ raise_exception('no') }}"
    assert end_of_turn(tokenizer) is None
