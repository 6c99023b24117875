/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: `pvn-perf serve` reads bytes from any client. The input is the JSON of a request
 * or of a knock. Its first twelve bytes are also decoded as a header. */
#include "config.h"

#include <string.h>

#include "perf/patterns/p2p_flow.h"
#include "perf/jobs/serve_proto.h"
#include "fuzz/fuzz.h"

static void printable(const char *s, size_t cap)
{
    fuzz_require(memchr(s, '\0', cap) != NULL, "a text ends");
    for (; *s; s++)
        fuzz_require(*s >= 0x20 && *s <= 0x7e, "what goes to a terminal can be printed");
}

static void check_head(const uint8_t *data, size_t size)
{
    struct pvn_serve_head h;
    char why[384] = "";
    uint32_t len;

    if (size < sizeof(h))
        return;
    memcpy(&h, data, sizeof(h));
    if (pvn_serve_check_head(&h, &len, why, sizeof(why)))
        fuzz_require(why[0] != '\0', "a refused header has its reason");
    else
        fuzz_require(len >= 2 && len <= PVN_SERVE_TEXT_MAX, "a length that there is room for");
}

/* A knock that was decoded stays the same when it is encoded and decoded again. */
static void check_knock(const uint8_t *data, size_t size)
{
    struct pvn_boot_knock knock, again;
    char *text;
    size_t len;

    if (pvn_serve_read_knock((const char *)data, size, &knock) != 1)
        return;
    text = pvn_serve_write_knock(&knock, &len);
    fuzz_require(text && pvn_serve_read_knock(text + sizeof(struct pvn_serve_head),
                                              len - sizeof(struct pvn_serve_head), &again) == 1,
                 "a knock is read");
    fuzz_require(memcmp(&knock, &again, sizeof(knock)) == 0, "a knock is the same");
    free(text);
}

static void within_bounds(const struct pvn_perf_opts *o)
{
    fuzz_require(o->nsizes >= 1 && o->nsizes <= PVN_PERF_MAX_SIZES, "a number of sizes");
    for (int i = 0; i < o->nsizes; i++)
        fuzz_require(o->size[i] <= NCCL_MAX_NET_SIZE_BYTES, "a size");
    fuzz_require(o->depth >= 1 && o->depth <= NCCL_NET_MAX_REQUESTS, "a depth");
    fuzz_require(o->group >= 1 && o->group <= 8, "a group");
    fuzz_require(o->channels >= 1 && o->channels <= PVN_PERF_MAX_CHANNELS, "channels");
    fuzz_require(o->nplugins >= 1 && o->nplugins <= PVN_PERF_MAX_PLUGINS, "plugins");
    fuzz_require(o->timeout > 0 && o->interval > 0, "times that pass");
    fuzz_require(pvn_p2p_bytes(o) <= o->max_memory, "no more memory than the server allows");
    fuzz_require(o->duration * o->nsizes <= o->max_time, "no more time than the server allows");
}

/* No client may change the server's own settings. */
static void untouched(const struct pvn_perf_opts *o)
{
    fuzz_require(o->max_memory == 1 << 20 && o->max_time >= 100 && o->max_time <= 100 &&
                     o->once == 1,
                 "the bounds are the server's");
    fuzz_require(strcmp(o->plugin[0].what, "/server/plugin.so") == 0 && o->nenv == 0 &&
                     !o->json[0] && !o->csv[0] && !o->plot[0],
                 "files and variables are the server's");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pvn_perf_opts *o = calloc(1, sizeof(*o));
    char who[200] = "", why[384] = "";
    int rc;

    fuzz_require(o != NULL, "there is memory");
    check_head(data, size);
    check_knock(data, size);
    o->mode = PVN_PERF_SERVE;
    o->depth = o->group = o->channels = o->nplugins = o->once = 1;
    o->timeout = o->interval = 1;
    o->max_memory = 1 << 20;
    o->max_time = 100;
    strcpy(o->plugin[0].what, "/server/plugin.so");
    rc = pvn_serve_read_request((const char *)data, size, o, who, sizeof(who), why, sizeof(why));
    printable(who, sizeof(who));
    if (rc) {
        fuzz_require(rc < 0 && why[0] != '\0', "a refusal has its reason");
        printable(why, sizeof(why));
    } else {
        within_bounds(o);
    }
    untouched(o);
    free(o);
    return 0;
}
