"""A Llama-shaped model twice as large as what the tenant has of its card: in a pool, by accelerate's offload to the host, or on the whole card.

    offload.py accelerate|<any other word> <primary GiB>
"""

import pathlib
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tell import check, digest, figure  # noqa: E402


def made():
    torch.manual_seed(4)
    torch.set_default_dtype(torch.bfloat16)
    config = LlamaConfig(
        hidden_size=4096, intermediate_size=11008, num_hidden_layers=20, num_attention_heads=32, num_key_value_heads=8, vocab_size=32000,
        max_position_embeddings=2048, dtype="bfloat16",
    )
    with torch.device("cuda"):
        return LlamaForCausalLM(config).eval()


def main():
    how, primary = sys.argv[1], int(sys.argv[2])
    model = made()
    if how == "accelerate":
        from accelerate import dispatch_model, infer_auto_device_map

        model = model.to("cpu")
        torch.cuda.empty_cache()
        # What is left of the card's share goes to activations, as accelerate's own guide advises.
        limits = {0: f"{primary * 3 // 4}GiB", "cpu": "100GiB"}
        places = infer_auto_device_map(model, max_memory=limits, no_split_module_classes=["LlamaDecoderLayer"])
        model = dispatch_model(model, device_map=places)
        check("some layers are on the host", "cpu" in places.values(), f"{list(places.values()).count('cpu')} parts of {len(places)}")
    prompt = torch.randint(0, 32000, (8, 512), generator=torch.Generator().manual_seed(1)).cuda()

    def timed(work, rounds):
        work()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(rounds):
            out = work()
        torch.cuda.synchronize()
        return rounds / (time.perf_counter() - begin), out

    few = 3 if how in ("accelerate", "far") else 20
    with torch.no_grad():
        rate, out = timed(lambda: model(prompt, use_cache=False).logits[:, -1].float(), few)
        figure("prefill_tokens_per_s", 8 * 512 * rate)
        digest("logits", out)
        start = model(prompt[:1], use_cache=True)
        cache, word = start.past_key_values, start.logits[:, -1:].argmax(-1)

        def decode():
            nonlocal word
            word = model(word, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
            return word

        decode()
        before = torch.cuda.memory_stats()["num_device_alloc"]
        times = []
        for _ in range(few):
            begin = time.perf_counter()
            decode()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        # The processor bounds a token on a fast card, and its mood changes: the median of single tokens.
        figure("decode_tokens_per_s", 1 / sorted(times)[few // 2])
        figure("decode_best_tokens_per_s", 1 / min(times))
        figure("decode_device_allocations", torch.cuda.memory_stats()["num_device_alloc"] - before)
    weights = sum(parameter.numel() * 2 for parameter in model.parameters())
    figure("weights_mib", weights >> 20)


main()
