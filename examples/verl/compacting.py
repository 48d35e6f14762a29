"""An agent loop of one's own: it shortens its context, so that one draw has several rows.

Of `7+5-9+3?` the model says `7 12 3`, is then asked what is left, `3+3?`, and so on. The reward is
that of the last row's response, and all rows are learned from with the draw's advantage.
"""

import re
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

TERMS = re.compile(r"[+-]?\d+")


class Compacting(AgentLoopBase):
    """Lets the model draw a few tokens, and asks it what is left.

    Args:
        tokens: That the model draws before its context is shortened; the last row may have more.
    """

    def __init__(self, *arguments, tokens, **options):
        super().__init__(*arguments, **options)
        self.tokens = tokens

    async def run(self, sampling_params, **fields):
        """Draw one response; a list of verl's `AgentLoopOutput`, one for each row."""
        messages, rows = list(fields["raw_prompt"]), []
        while True:
            question = messages[-1]["content"]
            short = len(TERMS.findall(question)) > 2
            limit = {"max_tokens": self.tokens} if short else {}
            rows.append(await self.row(messages, sampling_params | limit))
            said = self.tokenizer.decode(rows[-1].response_ids)
            totals = said.split()[: None if said.endswith(" ") else -1]  # the last one may be cut
            left = TERMS.findall(question)[len(totals) :]
            if not short or "=" in said or "\n" in said or len(totals) < 2 or not left:
                return rows
            messages = [{"role": "user", "content": f"{totals[-1]}{''.join(left)}?"}]

    async def row(self, messages, sampling_params):
        """Ask the model once."""
        prompt = await self.ct_build_initial_tokens(messages)
        output = await self.server_manager.generate(
            request_id=uuid4().hex, prompt_ids=prompt, sampling_params=sampling_params
        )
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=output.token_ids,
            response_mask=[1] * len(output.token_ids),
            response_logprobs=output.log_probs,
            num_turns=2,
            metrics={},
            extra_fields=dict(output.extra_fields),
        )
