"""Prompts as tokens: with and without a chat template, and never cut off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rollwise.errors import ConfigError, DataError, ModelError
from rollwise.models.encoding import encode_prompts, turn_encoder
from rollwise.tasks import Problem

CHARACTERS = ["<bos>", "\n", *"0123456789+-?=", *"abcdefghijklmnopqrstuvwxyz", *"<>: "]
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}:{{ message['content'] }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant:{% endif %}"
)
THINKING = TEMPLATE.replace(
    ":{{",
    ":{% if message['role'] == 'assistant' and loop.last %}think {% endif %}{{",
)
"""As Qwen3's: the last turn of the model is shown with empty thoughts, an earlier one without."""
COUNTING = "{{ messages | length }}" + TEMPLATE
"""Shows the model's turn otherwise once more follows."""


def make_tokenizer(template=None, begins=False):
    """One token a character; with `begins`, plain text starts with a special token."""
    vocabulary = {character: i for i, character in enumerate(CHARACTERS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<bos>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    if begins:
        tokenizer.post_processor = processors.TemplateProcessing("<bos> $A", None, [("<bos>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template)


def spell(text):
    return [CHARACTERS.index(character) for character in text]


def converse(*messages):
    return Problem("key", tuple({"role": r, "content": c} for r, c in messages), "12")


@pytest.mark.parametrize(
    ("template", "begins", "wanted"),
    [
        (None, False, "add\n7+5?"),
        (None, True, "add\n7+5?"),
        (TEMPLATE, False, "<system:add><user:7+5?><assistant:"),
        (TEMPLATE, True, "<system:add><user:7+5?><assistant:"),
    ],
)
def test_a_conversation_is_joined_by_newlines_or_as_the_template_opens_the_answer(
    template, begins, wanted
):
    """Plain text begins as the tokenizer has it."""
    problem = converse(("system", "add"), ("user", "7+5?"))
    ids = encode_prompts([problem], make_tokenizer(template, begins), 1000).token_ids["key"]
    assert ids == [0] * (begins and not template) + spell(wanted)
    assert {type(ids), *map(type, ids)} == {list, int}


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        (None, "7+5?\nlet me"),
        (TEMPLATE, "<user:7+5?><assistant:let me"),
        (THINKING, "<user:7+5?><assistant:think let me"),
    ],
)
def test_words_of_the_assistants_at_the_end_are_continued(template, wanted):
    problem = converse(("user", "7+5?"), ("assistant", "let me"))
    ids = encode_prompts([problem], make_tokenizer(template), 1000).token_ids["key"]
    assert ids == spell(wanted)
    if template is not None:
        cut = make_tokenizer(template.replace("['content']", "['content'].split(' ')[-1]"))
        with pytest.raises(ModelError, match="the final message does not appear"):
            encode_prompts([problem], cut, 1000)


@pytest.mark.parametrize("template", [None, TEMPLATE])
@given(lengths=st.sets(st.integers(1, 40), min_size=1), limit=st.integers(1, 60))
def test_a_prompt_is_kept_whole_or_dropped_and_counted(template, lengths, limit):
    tokenizer = make_tokenizer(template)
    around = len("<user:><assistant:") if template else 0
    problems = [Problem.ask("1" * length, "") for length in sorted(lengths, reverse=True)]
    fitting = [p for p in problems if len(p.messages[0]["content"]) + around <= limit]
    if not fitting:
        with pytest.raises(ConfigError):
            encode_prompts(problems, tokenizer, limit)
        return
    result = encode_prompts(problems, tokenizer, limit)
    assert result.problems == fitting
    assert result.too_long == len(problems) - len(fitting)
    assert {key: len(ids) - around for key, ids in result.token_ids.items()} == {
        problem.key: len(problem.messages[0]["content"]) for problem in fitting
    }


def test_nothing_left_says_how_far_off_the_limit_is():
    problems = [Problem.ask("1" * length, "") for length in (9, 7, 8)]
    message = r"of 3 prompts .* has 7 tokens, and 4 are left of .*= 10"
    with pytest.raises(ConfigError, match=message):
        encode_prompts(problems, make_tokenizer(), 10, 4, 8)


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("{{ raise_exception('no system') }}", "TemplateError: no system"),
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_chat_template_that_fails_is_named_with_the_roles_it_was_given(template, error):
    problem = converse(("system", "add"), ("user", "7+5?"))
    with pytest.raises(ModelError) as caught:
        encode_prompts([problem], make_tokenizer(template), 1000)
    assert "chat template fails on a conversation of system, user" in str(caught.value)
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([], "^there are no problems to encode$"),
        (["7+5\udc80?"], r"7\+5.*is half of a surrogate pair"),
    ],
)
def test_what_cannot_be_encoded_is_named(texts, said):
    with pytest.raises(DataError, match=said):
        encode_prompts([Problem.ask(text, "12") for text in texts], make_tokenizer(), 1000)


@pytest.mark.parametrize("template", [TEMPLATE, THINKING])
def test_what_an_environment_says_follows_the_models_end_token(template):
    encode = turn_encoder(make_tokenizer(template), {CHARACTERS.index(">")}, ("user", "tool"))
    assert encode("no") == spell("<user:no><assistant:")
    said = [{"role": "tool", "content": "3"}, {"role": "user", "content": "go"}]
    assert encode(said) == spell("<tool:3><user:go><assistant:")


def test_without_a_template_what_an_environment_says_is_encoded_as_it_is():
    encode = turn_encoder(make_tokenizer(begins=True), {0})
    assert encode("3 ") == encode([{"role": "tool", "content": "3 "}]) == spell("3 ")


@pytest.mark.parametrize("end_tokens", [set(), {CHARACTERS.index(">")}])
def test_a_template_that_rewrites_earlier_turns_is_refused(end_tokens):
    with pytest.raises(ModelError, match="of the role 'user' follows, so that turns cannot be app"):
        turn_encoder(make_tokenizer(COUNTING), end_tokens)


def test_a_template_is_tried_with_every_role_before_anything_is_drawn():
    refuses = "{% if messages[-1].role == 'tool' %}{{ raise_exception('none') }}{% endif %}"
    tokenizer = make_tokenizer(refuses + TEMPLATE)
    assert turn_encoder(tokenizer, {CHARACTERS.index(">")})("no") == spell("<user:no><assistant:")
    with pytest.raises(ModelError, match="fails on a conversation of user, assistant, tool"):
        turn_encoder(tokenizer, {CHARACTERS.index(">")}, ("user", "tool"))
