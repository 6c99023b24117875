/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Functions that the static expat and jansson of this machine may use and that glibc 2.28 does not have. Linked into the
 * tools of a portable build alone. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

void arc4random_buf(void *buf, size_t len);
long __isoc23_strtol(const char *text, char **end, int base);
unsigned long __isoc23_strtoul(const char *text, char **end, int base);
long long __isoc23_strtoll(const char *text, char **end, int base);
unsigned long long __isoc23_strtoull(const char *text, char **end, int base);

/* Since glibc 2.36. It cannot fail there, so it does not return here without having filled buf. */
void arc4random_buf(void *buf, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = getrandom((char *)buf + at, len - at, 0);
        if (n > 0)
            at += (size_t)n;
        else if (n < 0 && errno != EINTR)
            abort();
    }
}

/* Since glibc 2.38: the same but for binary numbers (0b1) in base 0 and 2, which expat and jansson do not read. */
long __isoc23_strtol(const char *text, char **end, int base)
{
    return strtol(text, end, base);
}

unsigned long __isoc23_strtoul(const char *text, char **end, int base)
{
    return strtoul(text, end, base);
}

long long __isoc23_strtoll(const char *text, char **end, int base)
{
    return strtoll(text, end, base);
}

unsigned long long __isoc23_strtoull(const char *text, char **end, int base)
{
    return strtoull(text, end, base);
}
