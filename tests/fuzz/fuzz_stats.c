/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the reader of statistics files. The input changes a valid file with two rows. Its
 * first two bytes say how many bytes are cut off the file's end (little endian). Then each three
 * bytes are an offset and the byte's new value. */
#include "config.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "stats/stats_read.h"
#include "fuzz/fuzz.h"
#include "fuzz/hex.h"

enum { ROWS = 2, BYTES = sizeof(struct pvn_stat_head) + ROWS * sizeof(struct pvn_stat_row) };

/* Makes the file as left by a process that ended long ago. */
static void whole(uint8_t *image)
{
    struct pvn_stat_head h = {.id = {.magic = PVN_STAT_MAGIC,
                                     .version = PVN_STAT_VERSION,
                                     .head_bytes = sizeof(h),
                                     .row_bytes = sizeof(struct pvn_stat_row),
                                     .max_rows = PVN_STAT_ROWS,
                                     .pid = 1,
                                     .start = 1,
                                     .boot_id = "an earlier boot"},
                              .rows = ROWS,
                              .plugin = "0.1.0"};
    int i;

    gethostname(h.id.host, sizeof(h.id.host) - 1);
    memcpy(image, &h, sizeof(h));
    for (i = 0; i < ROWS; i++) {
        struct pvn_stat_row r = {.id = (uint64_t)(ROWS - i),
                                 .phase = PVN_STAT_UP,
                                 .state = "UP",
                                 .text = "nothing",
                                 .live = {.msgs = 2, .bytes = 300, .opened = 3}};

        memcpy(image + sizeof(h) + (size_t)i * sizeof(r), &r, sizeof(r));
    }
}

static void text(const char *s, size_t size)
{
    size_t i;

    fuzz_require(memchr(s, '\0', size) != NULL, "a text ends");
    for (i = 0; s[i]; i++)
        fuzz_require(s[i] >= 0x20 && s[i] <= 0x7e, "a text can be printed");
}

static void readable(const struct pvn_stats *s)
{
    int i;

    fuzz_require(s->nrows <= ROWS, "no more rows than the file holds");
    text(s->head.id.host, sizeof(s->head.id.host));
    text(s->head.plugin, sizeof(s->head.plugin));
    text(s->head.command, sizeof(s->head.command));
    text(s->head.rank, sizeof(s->head.rank));
    for (i = 0; i < s->nrows; i++) {
        const struct pvn_stat_row *r = &s->row[i];

        fuzz_require(r->id != 0 && (i == 0 || r[-1].id <= r->id), "rows in order");
        fuzz_require(r->phase >= PVN_STAT_LISTEN && r->phase <= PVN_STAT_CLOSED, "a known phase");
        fuzz_require(r->n.msgs >= r->live.msgs && r->n.bytes >= r->live.bytes,
                     "what has been counted since");
        text(r->state, sizeof(r->state));
        text(r->device, sizeof(r->device));
        text(r->peer_host, sizeof(r->peer_host));
        text(r->lanes, sizeof(r->lanes));
        text(r->text, sizeof(r->text));
    }
}

/* Returns the one file to which all inputs are written. */
static const char *file(int *fd)
{
    static char path[] = "/tmp/fuzz-stats-XXXXXX";
    static int open_fd = -1;

    if (open_fd < 0) {
        open_fd = mkstemp(path);
        fuzz_require(open_fd >= 0, "there is room for a file");
    }
    *fd = open_fd;
    return path;
}

static void remove_file(void)
{
    int fd;

    unlink(file(&fd));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool first = true;
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_stats s;
    uint8_t image[BYTES];
    size_t n, i, cut;
    uint8_t *b = fuzz_bytes(data, size, &n);
    const char *path;
    int fd, rc;

    path = file(&fd);
    if (first)
        atexit(remove_file);
    first = false;
    whole(image);
    cut = n >= 2 ? (size_t)(b[0] | b[1] << 8) % (BYTES + 1) : 0;
    for (i = 2; i + 3 <= n; i += 3)
        image[(size_t)(b[i] | b[i + 1] << 8) % BYTES] = b[i + 2];
    free(b);
    fuzz_require(ftruncate(fd, 0) == 0 &&
                     pwrite(fd, image, BYTES - cut, 0) == (ssize_t)(BYTES - cut),
                 "the file is written");
    rc = pvn_stats_read(path, &s, &err);
    if (rc) {
        fuzz_require(rc < 0 && err.code == rc && err.reason[0][0], "a refusal has its reason");
        fuzz_require(!s.row, "and leaves nothing");
        return 0;
    }
    readable(&s);
    pvn_stats_free(&s);
    return 0;
}
