"""transformers: a Llama-shaped model of random weights, larger than the primary, generates and is fine-tuned.

    llama.py <primary GiB> <pool bytes or 0>
"""

import os
import pathlib
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import check, digest  # noqa: E402


def shaped(layers):
    return LlamaConfig(
        hidden_size=4096, intermediate_size=11008, num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=8,
        vocab_size=32000, max_position_embeddings=2048, attn_implementation="sdpa", dtype="bfloat16",
    )


def main():
    primary = int(sys.argv[1]) << 30
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(11)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(shaped(layers=12))
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    check("the model is larger than the primary", weights > primary, f"{weights >> 20} MiB of weights")
    digest("last layer", model.model.layers[-1].mlp.down_proj.weight)
    prompt = torch.randint(0, 32000, (2, 64), generator=torch.Generator().manual_seed(1)).cuda()
    with torch.no_grad():
        text = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24, min_new_tokens=24, do_sample=False, pad_token_id=0)
    check("generated", text.shape == (2, 88), f"{text[0, -4:].tolist()}")
    digest("generated tokens", text)

    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses = []
    for _ in range(2):
        optimiser.zero_grad()
        loss = model(input_ids=text, labels=text).loss
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    held = torch.cuda.max_memory_allocated()
    check("two steps of fine-tuning", losses[1] < losses[0], f"loss {losses[0]:.4f} to {losses[1]:.4f}, {held >> 20} MiB at most")
    digest("weight after two steps", model.model.layers[0].self_attn.q_proj.weight)
    digest("head after two steps", model.lm_head.weight)


main()
