// Reads exported names; says which of them cuGetProcAddress never answers.
#include <dlfcn.h>
#include "driver.h"

static void base_of(char *name) {
  char *mark;
  if ((mark = strstr(name, "_pts")) || (mark = strstr(name, "_ptd"))) *mark = 0;
  size_t length = strlen(name);
  if (length > 3 && name[length - 3] == '_' && name[length - 2] == 'v') name[length - 3] = 0;
}

int main(void) {
  char name[128];
  while (scanf("%127s", name) == 1) {
    void *address = dlsym(RTLD_DEFAULT, name), *answer;
    int found = 0;
    base_of(name);
    for (int version = 0; version <= 14000 && !found; version += 10)
      for (int flags = 1; flags <= 2; flags++)
        found |= !cuGetProcAddress_v2(name, &answer, version, flags, NULL) && answer && answer == address;
    if (!found) printf("unreachable=%s\n", name);
  }
  printf("done=1\n");
}
