// The oldest C library that the stand-ins load beside is glibc 2.17, whatever they were built on. A linker binds every symbol to the newest
// version that the build machine has; what newer libraries moved or added is bound here, to what was always there. Everything is
// hidden: the tenant's program never sees these.
//
// Words in front of a wrapped name are this library's own calls. dlopen and dlsym look at who calls them: still this library.

#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>

#define HIDDEN __attribute__((visibility("hidden")))

#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#else
#error "which version of glibc was the first on this machine?"
#endif

extern long syscall(long number, ...);

// Moved from libdl and libpthread into libc by glibc 2.34, with new versions. The old ones are still there.
#define MOVED(type, name, parameters, arguments)                                                                        \
  extern type first_##name parameters;                                                                                  \
  __asm__(".symver first_" #name "," #name "@" FIRST);                                                                  \
  HIDDEN type name parameters { return first_##name arguments; }

MOVED(void *, dlopen, (const char *file, int mode), (file, mode))
MOVED(void *, dlsym, (void *handle, const char *name), (handle, name))
MOVED(int, dladdr, (const void *address, void *found), (address, found))
MOVED(int, pthread_key_create, (unsigned *key, void (*end)(void *)), (key, end))
MOVED(int, pthread_key_delete, (unsigned key), (key))
MOVED(void *, pthread_getspecific, (unsigned key), (key))
MOVED(int, pthread_setspecific, (unsigned key, const void *value), (key, value))

// Functions since glibc 2.33; before, macros over others. The kernel fills the same structure.
#if defined(__x86_64__)
#define STAT_AT SYS_newfstatat
#else
#define STAT_AT SYS_fstatat
#endif
#define AT_FDCWD -100
#define AT_SYMLINK_NOFOLLOW 0x100

HIDDEN int stat(const char *path, void *to) { return (int)syscall(STAT_AT, AT_FDCWD, path, to, 0); }
HIDDEN int stat64(const char *path, void *to) { return (int)syscall(STAT_AT, AT_FDCWD, path, to, 0); }
HIDDEN int lstat(const char *path, void *to) { return (int)syscall(STAT_AT, AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW); }
HIDDEN int lstat64(const char *path, void *to) { return (int)syscall(STAT_AT, AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW); }
HIDDEN int fstat(int file, void *to) { return (int)syscall(SYS_fstat, file, to); }
HIDDEN int fstat64(int file, void *to) { return (int)syscall(SYS_fstat, file, to); }
HIDDEN int fstatat(int file, const char *path, void *to, int flags) { return (int)syscall(STAT_AT, file, path, to, flags); }
HIDDEN int fstatat64(int file, const char *path, void *to, int flags) { return (int)syscall(STAT_AT, file, path, to, flags); }

// Later additions that are system calls.
HIDDEN int gettid(void) { return (int)syscall(SYS_gettid); }
HIDDEN long getrandom(void *to, size_t length, unsigned flags) { return syscall(SYS_getrandom, to, length, flags); }
HIDDEN int statx(int file, const char *path, int flags, unsigned mask, void *to) {
  return (int)syscall(SYS_statx, file, path, flags, mask, to);
}

// glibc 2.18: destructors of thread-locals. As a list under a thread-specific key, the newest first; one that registers another
// makes the thread's end go round again. The library is never unloaded, so whose destructor it is does not matter.
struct ending {
  void (*end)(void *);
  void *object;
  struct ending *next;
};

static unsigned endings;

static void run_endings(void *first) {
  struct ending *at = first;
  while (at) {
    struct ending done = *at;
    free(at);
    done.end(done.object);
    at = done.next;
  }
}

__attribute__((constructor)) static void prepare_endings(void) { pthread_key_create(&endings, run_endings); }

HIDDEN int __cxa_thread_atexit_impl(void (*end)(void *), void *object, void *library) {
  (void)library;
  struct ending *ending = malloc(sizeof *ending);
  if (!ending) return -1;
  *ending = (struct ending){end, object, pthread_getspecific(endings)};
  return pthread_setspecific(endings, ending);
}
