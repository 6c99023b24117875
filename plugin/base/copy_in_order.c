/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/copy_in_order.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum { WORD = 8, LINE = 128, FLAG_AT = LINE - WORD };

/* Keeps the compiler from exchanging two stores, or from calling memcpy for several. The processor
 * may still exchange them, if its architecture lets it. */
static inline void in_turn(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* The stores before it become visible before those after it. x86 needs no instruction for that. */
static inline void before_flag(void)
{
#if defined(__x86_64__) || defined(__i386__)
    in_turn();
#else
    atomic_thread_fence(memory_order_release);
#endif
}

static inline void copy_word(uint8_t *to, const uint8_t *from)
{
    memcpy(to, from, WORD);
    in_turn();
}

/* to is the address of a word, so the store divides none, whatever its alignment to 16 bytes. */
static inline void copy_two_words(uint8_t *to, const uint8_t *from)
{
    memcpy(to, from, 2 * WORD);
    in_turn();
}

static inline void copy_line(uint8_t *to, const uint8_t *from)
{
#pragma GCC unroll 7
    for (int at = 0; at < FLAG_AT - WORD; at += 2 * WORD)
        copy_two_words(to + at, from + at);
    copy_word(to + FLAG_AT - WORD, from + FLAG_AT - WORD);
    before_flag();
    copy_word(to + FLAG_AT, from + FLAG_AT);
}

/* For less than a word, in which a flag may begin or end. */
static inline void copy_bytes(uint8_t *to, const uint8_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        before_flag();
        to[i] = from[i];
    }
}

void pvn_copy_in_order(void *dst, const void *src, size_t n)
{
    uint8_t *to = dst;
    const uint8_t *from = src;
    size_t part = -(uintptr_t)to % WORD;

    /* A piece of a message may begin and end within a word. */
    part = part < n ? part : n;
    copy_bytes(to, from, part);
    for (n -= part; n >= WORD; n -= part) {
        size_t at;

        to += part;
        from += part;
        at = (uintptr_t)to % LINE;
        if (at == 0 && n >= LINE) {
            copy_line(to, from);
            part = LINE;
        } else if (at < FLAG_AT - WORD && n >= 2 * WORD) {
            copy_two_words(to, from);
            part = 2 * WORD;
        } else {
            if (at == FLAG_AT)
                before_flag();
            copy_word(to, from);
            part = WORD;
        }
    }
    copy_bytes(to + part, from + part, n);
    before_flag();
}
