"""A model as the judge of responses: any server of OpenAI's chat API."""

import os
import re
from dataclasses import dataclass, field
from functools import cached_property

ASKED = """A student was asked:
{prompt}

The reference answer is: {answer}

The student wrote:
{response}

How good is this answer, from 0 (useless) to 10 (right, and well explained)? End with the number."""


@dataclass
class Judge:
    """The judge's mark, from 0 to 1; from `passed` on, a response counts as correct."""

    url: str = field(default="http://localhost:8000/v1", metadata={"help": "Address of the API."})
    model: str = field(default="judge", metadata={"help": "The judge's name at the server."})
    passed: float = field(default=8, metadata={"help": "The mark from which on it is correct."})

    @cached_property
    def client(self):
        """One for each worker process; the key is in `OPENAI_API_KEY`."""
        from openai import AsyncOpenAI  # here, because only workers need it

        return AsyncOpenAI(base_url=self.url, api_key=os.environ.get("OPENAI_API_KEY", "none"))

    async def grade(self, response: str, answer: str, prompt: str) -> dict:
        """Ask for a mark; an error gives this response no reward, and is logged."""
        asked = ASKED.format(prompt=prompt, answer=answer, response=response)
        found = await self.client.chat.completions.create(
            model=self.model,
            messages=[{"role": "user", "content": asked}],
            temperature=0.0,
            seed=0,
        )
        said = found.choices[0].message.content or ""
        number = re.search(r"(\d+(?:\.\d+)?)\W*$", said)
        if number is None or float(number[1]) > 10:
            raise ValueError(f"the judge gave no mark from 0 to 10: {said[-80:]!r}")
        mark = float(number[1])
        return {"score": mark / 10, "acc": mark >= self.passed}
