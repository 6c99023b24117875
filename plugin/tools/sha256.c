/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tools/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct sha256 {
    uint32_t h[8];
    uint64_t bytes;
    unsigned char block[64];
    size_t fill;
};

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t v, int bits)
{
    return v >> bits | v << (32 - bits);
}

static void take_block(struct sha256 *s)
{
    uint32_t w[64], v[8];

    for (int i = 0; i < 16; i++) {
        const unsigned char *b = &s->block[4 * i];

        w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];

        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
               (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(v, s->h, sizeof(v));
    for (int i = 0; i < 64; i++) {
        uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        uint32_t one =
            v[7] + (turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25)) + choice + K[i] + w[i];
        uint32_t two = (turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22)) + majority;

        memmove(&v[1], &v[0], 7 * sizeof(v[0]));
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        s->h[i] += v[i];
    s->fill = 0;
}

static void start(struct sha256 *s)
{
    static const uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memset(s, 0, sizeof(*s));
    memcpy(s->h, h, sizeof(h));
}

static void add_bytes(struct sha256 *s, const unsigned char *data, size_t len)
{
    s->bytes += len;
    while (len) {
        size_t n = sizeof(s->block) - s->fill;

        n = len < n ? len : n;
        memcpy(s->block + s->fill, data, n);
        s->fill += n;
        data += n;
        len -= n;
        if (s->fill == sizeof(s->block))
            take_block(s);
    }
}

static void finish(struct sha256 *s, char out[PVN_SHA256_TEXT])
{
    static const unsigned char one = 0x80, zero;
    uint64_t bits = s->bytes * 8;
    unsigned char length[8];

    add_bytes(s, &one, 1);
    while (s->fill != sizeof(s->block) - sizeof(length))
        add_bytes(s, &zero, 1);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    add_bytes(s, length, sizeof(length));
    for (int i = 0; i < 8; i++)
        snprintf(out + 8 * i, PVN_SHA256_TEXT - 8 * (size_t)i, "%08x", s->h[i]);
}

void pvn_sha256(const void *data, size_t len, char out[PVN_SHA256_TEXT])
{
    struct sha256 s;

    start(&s);
    add_bytes(&s, data, len);
    finish(&s, out);
}

int pvn_sha256_file(const char *path, char out[PVN_SHA256_TEXT])
{
    unsigned char buf[16384];
    struct sha256 s;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;

    out[0] = '\0';
    if (fd < 0)
        return -errno;
    start(&s);
    while ((n = read(fd, buf, sizeof(buf))) > 0)
        add_bytes(&s, buf, (size_t)n);
    rc = n < 0 ? -errno : 0;
    close(fd);
    if (rc == 0)
        finish(&s, out);
    return rc;
}
