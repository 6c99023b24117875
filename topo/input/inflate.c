/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/input/inflate.h"

#include <stdbool.h>
#include <string.h>

enum {
    MAX_LENGTH = 15,   /* bits of a code */
    MAX_SYMBOLS = 288, /* of literals and lengths */
    MAX_DISTANCES = 32,
    END = 256,
    ADLER_MODULUS = 65521,
};

struct stream {
    const uint8_t *in;
    size_t len, at; /* bytes */
    unsigned held;  /* unused bits of the current byte, lowest first */
    int n_held;
    uint8_t *out;
    size_t cap, used;
    bool bad;
};

/* A canonical Huffman code. Codes of one length are consecutive, and the codes of the next length
 * begin at twice the value that follows. So the number of codes of each length and the symbols in
 * order describe the code. */
struct code {
    uint16_t count[MAX_LENGTH + 1];
    uint16_t symbol[MAX_SYMBOLS];
};

ssize_t pvn_topo_base64(const char *text, uint8_t *out, size_t cap)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t hold = 0;
    int bits = 0;
    size_t n = 0;
    for (; *text && *text != '='; text++) {
        const char *digit = strchr(digits, *text);
        if (!digit)
            return -1;
        hold = hold << 6 | (uint32_t)(digit - digits);
        bits += 6;
        if (bits < 8)
            continue;
        bits -= 8;
        if (n == cap)
            return -1;
        out[n++] = (uint8_t)(hold >> bits);
    }
    return (ssize_t)n;
}

static unsigned bit(struct stream *s)
{
    if (s->n_held == 0) {
        if (s->at == s->len) {
            s->bad = true;
            return 0;
        }
        s->held = s->in[s->at++];
        s->n_held = 8;
    }
    unsigned value = s->held & 1;
    s->held >>= 1;
    s->n_held--;
    return value;
}

static unsigned bits(struct stream *s, int n)
{
    unsigned value = 0;
    for (int i = 0; i < n; i++)
        value |= bit(s) << i;
    return value;
}

static void put_byte(struct stream *s, unsigned byte)
{
    if (s->used == s->cap)
        s->bad = true;
    else
        s->out[s->used++] = (uint8_t)byte;
}

static void make_code(struct code *c, const uint8_t *lengths, int n)
{
    uint16_t next[MAX_LENGTH + 2] = {0};
    memset(c, 0, sizeof(*c));
    for (int i = 0; i < n; i++)
        c->count[lengths[i]]++;
    c->count[0] = 0;
    for (int i = 1; i <= MAX_LENGTH; i++)
        next[i + 1] = (uint16_t)(next[i] + c->count[i]);
    for (int i = 0; i < n; i++)
        if (lengths[i])
            c->symbol[next[lengths[i]]++] = (uint16_t)i;
}

static int decode(struct stream *s, const struct code *c)
{
    unsigned value = 0, first = 0, before = 0;
    for (int length = 1; length <= MAX_LENGTH && !s->bad; length++) {
        value = value << 1 | bit(s);
        first <<= 1;
        if (value - first < c->count[length])
            return c->symbol[before + value - first];
        first += c->count[length];
        before += c->count[length];
    }
    s->bad = true;
    return END;
}

static void copy_match(struct stream *s, int symbol, const struct code *distances)
{
    static const uint16_t length_base[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                           15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                           67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint16_t distance_base[] = {
        1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
        193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    int l = symbol - END - 1;
    if (l > 28) {
        s->bad = true;
        return;
    }
    unsigned length = length_base[l] + (l < 8 || l == 28 ? 0 : bits(s, l / 4 - 1));
    int d = decode(s, distances);
    if (s->bad || d > 29) {
        s->bad = true;
        return;
    }
    size_t distance = distance_base[d] + (d < 4 ? 0 : bits(s, d / 2 - 1));
    if (distance > s->used) {
        s->bad = true;
        return;
    }
    for (; length > 0 && !s->bad; length--)
        put_byte(s, s->out[s->used - distance]);
}

static void coded_block(struct stream *s, const struct code *literals, const struct code *distances)
{
    while (!s->bad) {
        int symbol = decode(s, literals);
        if (symbol == END)
            return;
        if (symbol < END)
            put_byte(s, (unsigned)symbol);
        else
            copy_match(s, symbol, distances);
    }
}

static void stored_block(struct stream *s)
{
    s->n_held = 0;
    unsigned n = bits(s, 16), complement = bits(s, 16);
    s->bad |= (n ^ complement) != 0xffff;
    for (; n > 0 && !s->bad; n--)
        put_byte(s, bits(s, 8));
}

static void fixed_block(struct stream *s)
{
    struct code literals, distances;
    uint8_t lengths[MAX_SYMBOLS];
    for (int i = 0; i < MAX_SYMBOLS; i++)
        lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    make_code(&literals, lengths, MAX_SYMBOLS);
    memset(lengths, 5, MAX_DISTANCES);
    make_code(&distances, lengths, MAX_DISTANCES);
    coded_block(s, &literals, &distances);
}

/* Reads the lengths of both codes, which are coded themselves: 16 repeats the previous length, 17
 * and 18 are runs of zeros. */
static void dynamic_block(struct stream *s)
{
    static const uint8_t order[] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                    11, 4,  12, 3, 13, 2, 14, 1, 15};
    struct code code, distances;
    uint8_t lengths[MAX_SYMBOLS + MAX_DISTANCES] = {0};
    int n_literals = (int)bits(s, 5) + 257, n_distances = (int)bits(s, 5) + 1;
    int n_codes = (int)bits(s, 4) + 4, n = 0;
    if (s->bad || n_literals > MAX_SYMBOLS) {
        s->bad = true;
        return;
    }
    for (int i = 0; i < n_codes; i++)
        lengths[order[i]] = (uint8_t)bits(s, 3);
    make_code(&code, lengths, 19);
    memset(lengths, 0, sizeof(lengths));
    while (n < n_literals + n_distances && !s->bad) {
        int symbol = decode(s, &code);
        if (symbol < 16) {
            lengths[n++] = (uint8_t)symbol;
            continue;
        }
        uint8_t length = symbol == 16 && n > 0 ? lengths[n - 1] : 0;
        unsigned run = symbol == 16   ? 3 + bits(s, 2)
                       : symbol == 17 ? 3 + bits(s, 3)
                                      : 11 + bits(s, 7);
        s->bad |= symbol > 18 || (symbol == 16 && n == 0) ||
                  run > (unsigned)(n_literals + n_distances - n);
        for (; run > 0 && !s->bad; run--)
            lengths[n++] = length;
    }
    if (s->bad)
        return;
    make_code(&code, lengths, n_literals);
    make_code(&distances, lengths + n_literals, n_distances);
    coded_block(s, &code, &distances);
}

/* Adler-32 (RFC 1950). */
static uint32_t checksum(const uint8_t *data, size_t len)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < len; i++) {
        a = (a + data[i]) % ADLER_MODULUS;
        b = (b + a) % ADLER_MODULUS;
    }
    return b << 16 | a;
}

ssize_t pvn_topo_inflate(const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct stream s = {.in = in, .len = len, .at = 2, .out = out, .cap = cap};
    uint32_t sum = 0;
    bool last = false;
    if (len < 2 || (in[0] & 0x0f) != 8 || (in[0] << 8 | in[1]) % 31 != 0 || in[1] & 0x20)
        return -1;
    while (!last && !s.bad) {
        last = bit(&s);
        unsigned type = bits(&s, 2);
        if (type == 0)
            stored_block(&s);
        else if (type == 1)
            fixed_block(&s);
        else if (type == 2)
            dynamic_block(&s);
        else
            s.bad = true;
    }
    s.n_held = 0;
    for (int i = 0; i < 4; i++)
        sum = sum << 8 | bits(&s, 8);
    return s.bad || sum != checksum(out, s.used) ? -1 : (ssize_t)s.used;
}
