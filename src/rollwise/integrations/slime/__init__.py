"""slime with prompts from a sampler and advantages from a belief, by slime's function paths."""

from rollwise.integrations.slime.source import PromptSource, post_process_rewards

__all__ = ["PromptSource", "post_process_rewards"]
