/* What a program that knows of its pool may ask of the stand-in driver, which exports these functions beside the driver's own.
 *
 * Nothing here is needed: a program that knows nothing sees one device and a sensible placement. Look the functions up with
 * dlsym(dlopen("libcuda.so.1", RTLD_NOW), "tarn_…"): on a bare card they are absent. Results are CUresult numbers: 0 is success, 1 a
 * wrong argument, 2 out of memory, 801 what cannot be done to this block. The ABI only grows; structures carry their size. */
#ifndef TARN_H
#define TARN_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define TARN_ABI_VERSION 1
#define TARN_SCOPE 0 /* in place of an address: this thread's later allocations */

enum tarn_placement {
  TARN_DEFAULT = 0,    /* as the pool's policy says */
  TARN_HOT = 1,        /* on the primary while it has room, its reserve included */
  TARN_COLD = 2,       /* on donors while they have room; requests below 2 MiB stay where they are */
  TARN_INTERLEAVE = 3, /* granules in turn over all cards */
  TARN_BALANCED = 4    /* shares in proportion to free bytes */
};

enum tarn_flags {
  TARN_SPILLED = 1, /* a stitched block: its parts are below. Otherwise one the driver placed whole on the primary */
  TARN_PINNED = 2,  /* existed when a capture or graph was made: is never moved */
  TARN_SHARED = 4,  /* other processes may open it: is never moved */
  TARN_OPENED = 8,  /* another process's block: that one is charged for it */
  TARN_MAPPED = 16  /* a handle of the virtual memory interface (PyTorch's expandable segments), where it is mapped */
};

/* Where a block's bytes are, or a mapped handle's, or (address 0) all of this process's. What is known of heat is what the allocator knows: age, size and
 * hint. Kernels and copies are not watched, since that would cost every one of them. */
typedef struct {
  uint32_t size;      /* set by the caller: sizeof(tarn_residency_t) */
  uint32_t flags;     /* enum tarn_flags; 0 for address 0 */
  uint64_t start, bytes;
  uint64_t local_bytes; /* on the primary */
  uint64_t donor_bytes; /* on donors, all together */
  uint64_t host_bytes;  /* on the host tier: never counted as device memory */
  uint64_t age_ms;      /* since the allocation, or of the oldest stitched block */
  uint32_t hint;        /* enum tarn_placement */
  uint32_t segments;    /* physical parts, or stitched blocks for address 0 */
  uint64_t of_donor[15]; /* bytes on each donor, in the order of the pool config */
} tarn_residency_t;

int tarn_abi_version(void);
/* For TARN_SCOPE: a hint for what this thread allocates from now on. For an address: the hint of its stitched block, on which
 * tarn_migrate(…, TARN_DEFAULT) acts. */
int tarn_hint(uint64_t at, int placement);
int tarn_residency(uint64_t at, tarn_residency_t *out);
/* Says that the model is loaded. While it loads, large requests leave the primary's reserve alone; afterwards they may use some of it. Unsaid,
 * a pause in the growth of the process means the same. */
int tarn_loaded(void);
/* Starts of this process's stitched blocks: up to `room` of them; `count` says how many there are. */
int tarn_blocks(uint64_t *starts, size_t room, size_t *count);
/* Moves a stitched block under its address to where the placement wants it (TARN_HOT, TARN_COLD, or TARN_DEFAULT: its own hint), part by
 * part as room allows. Waits for all work of the calling thread's context first. No other thread or process may use the block until the
 * call returns. `moved` (may be NULL) says how many bytes changed cards; 2 means that there was no room for any. Pinned, shared and opened
 * blocks, blocks of the driver and calls during a capture are refused with 801. */
int tarn_migrate(uint64_t at, int placement, uint64_t *moved);

#ifdef __cplusplus
}
#endif
#endif
