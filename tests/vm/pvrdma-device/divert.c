/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* divert.c: diverts a function of the running program, by a jump at its entry and a trampoline for
 * the instructions that the jump replaces. x86-64 only. */
#define _GNU_SOURCE
#include "pvstand.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    PAGE = 4096,
    LONG_JUMP = 14, /* jmp *0(%rip) and the address */
    SHORT_JUMP = 5, /* jmp rel32 */
    CALL = 5,       /* call rel32 */
    RWX = PROT_READ | PROT_WRITE | PROT_EXEC
};

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "pvstand: %s %s\n", what, name);
    exit(1);
}

/* Length of one plain instruction of a function's entry that may be moved elsewhere: register
 * pushes, moves, lea with displacement, xor, sub from rsp. 0 if it is none of them. (A call is
 * moved by write_long_call.) */
static int plain_instruction(const uint8_t *p)
{
    int prefix = (*p & 0xf0) == 0x40 ? 1 : 0; /* REX */
    int mod, rm;

    p += prefix;
    if (*p >= 0x50 && *p <= 0x57)
        return prefix + 1;
    if (p[0] == 0x83 && p[1] == 0xec)
        return prefix + 3;
    if (*p != 0x8b && *p != 0x89 && *p != 0x8d && *p != 0x31)
        return 0;
    mod = p[1] >> 6;
    rm = p[1] & 7;
    if (mod == 3)
        return prefix + 2;
    if (rm == 4 || (mod == 0 && rm == 5)) /* needs a SIB byte, or is relative to rip */
        return 0;
    return prefix + 2 + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

static void write_long_jump(uint8_t *at, const void *to)
{
    static const uint8_t jump[6] = {0xff, 0x25, 0, 0, 0, 0};

    memcpy(at, jump, sizeof jump);
    memcpy(at + sizeof jump, &to, sizeof to);
}

/* call rel32, out of reach at its new place: call *2(%rip), jump over the address, the address. */
static int write_long_call(uint8_t *at, const uint8_t *from)
{
    static const uint8_t call[8] = {0xff, 0x15, 2, 0, 0, 0, 0xeb, 8};
    const uint8_t *to;
    int32_t distance;

    memcpy(&distance, from + 1, sizeof distance);
    to = from + CALL + distance;
    memcpy(at, call, sizeof call);
    memcpy(at + sizeof call, &to, sizeof to);
    return sizeof call + sizeof to;
}

/* Moves instructions to the trampoline until a long jump fits in their place, or until one cannot be moved. The
 * trampoline then jumps to the instruction after them. Returns the number of bytes that are free at f. */
static int move_entry(const uint8_t *f, uint8_t *trampoline)
{
    int in = 0, out = 0, k;

    while (in < LONG_JUMP) {
        if (f[in] == 0xe8) {
            out += write_long_call(trampoline + out, f + in);
            in += CALL;
            continue;
        }
        k = plain_instruction(f + in);
        if (!k)
            break;
        memcpy(trampoline + out, f + in, k);
        in += k;
        out += k;
    }
    write_long_jump(trampoline + out, f + in);
    return in;
}

static uint8_t *code_page(uintptr_t at, int flags)
{
    void *p = mmap((void *)at, PAGE, RWX, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

/* Maps a page within a 32-bit displacement of f. */
static uint8_t *page_near(const uint8_t *f)
{
    uintptr_t page = (uintptr_t)f & -(uintptr_t)PAGE;
    uint8_t *p = NULL;

    for (uintptr_t a = page - 0x1000000; !p && a > page - 0x60000000; a -= 0x100000)
        p = code_page(a, MAP_FIXED_NOREPLACE);
    return p;
}

void stand_divert(const char *name, void *to, void *original)
{
    uint8_t *f = dlsym(RTLD_DEFAULT, name), *trampoline = code_page(0, 0), *island = NULL;
    uint8_t *page = (uint8_t *)((uintptr_t)f & -(uintptr_t)PAGE);
    int room;

    if (!f)
        fail("this QEMU does not export", name);
    if (!trampoline)
        fail("no memory to divert", name);
    room = move_entry(f, trampoline);
    if (room < LONG_JUMP) /* a short jump to an island within reach, which jumps on */
        island = room < SHORT_JUMP ? NULL : page_near(f);
    if (room < LONG_JUMP && !island)
        fail("cannot divert", name);
    memcpy(original, &trampoline, sizeof trampoline);
    if (mprotect(page, 2 * PAGE, RWX))
        fail("cannot write to", name);
    if (island) {
        int32_t distance = (int32_t)(island - (f + SHORT_JUMP));

        write_long_jump(island, to);
        f[0] = 0xe9;
        memcpy(f + 1, &distance, sizeof distance);
    } else {
        write_long_jump(f, to);
    }
    mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC);
}
