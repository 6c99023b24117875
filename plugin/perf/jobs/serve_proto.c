/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/jobs/serve_proto.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/version.h"
#include "perf/rank/messages.h"
#include "perf/patterns/p2p_flow.h"

#define MAGIC 0x70767366u
#define KNOCK "key" /* the only option of a knock */

enum type { INT, REAL };

/* Options that a client sets: their name, field and allowed values. A server that does not know an
 * option of a newer client refuses it by name. */
static const struct field {
    const char *key;
    size_t at;
    enum type type;
    double min, max;
} fields[] = {
#define INT_FIELD(key, member, min, max)                                                           \
    {                                                                                              \
        key, offsetof(struct pvn_perf_opts, member), INT, min, max                                 \
    }
#define REAL_FIELD(key, member, min, max)                                                          \
    {                                                                                              \
        key, offsetof(struct pvn_perf_opts, member), REAL, min, max                                \
    }
    INT_FIELD("plugins", nplugins, 1, PVN_PERF_MAX_PLUGINS),
    INT_FIELD("depth", depth, 1, NCCL_NET_MAX_REQUESTS),
    INT_FIELD("group", group, 1, 8),
    INT_FIELD("channels", channels, 1, PVN_PERF_MAX_CHANNELS),
    INT_FIELD("iters", iters, 0, 100000000),
    INT_FIELD("warmup", warmup, -1, 100000000),
    INT_FIELD("check", check, 0, 1),
    INT_FIELD("latency", latency, 0, 1),
    INT_FIELD("bandwidth", bandwidth, 0, 1),
    INT_FIELD("bidirectional", bidirectional, 0, 1),
    INT_FIELD("repeat", repeat, 1, 1000),
    INT_FIELD("spin", spin, 0, 1),
    INT_FIELD("traffic-class", traffic_class, NCCL_NET_TRAFFIC_CLASS_UNDEF, 255),
    REAL_FIELD("time", time, 0, 86400),
    REAL_FIELD("duration", duration, 0, 30 * 86400.0),
    REAL_FIELD("interval", interval, 0.1, 30 * 86400.0),
    REAL_FIELD("idle", idle, 0, 86400),
    REAL_FIELD("timeout", timeout, 0.001, 86400),
#undef INT_FIELD
#undef REAL_FIELD
};

enum { FIELDS = sizeof(fields) / sizeof(fields[0]) };

int pvn_serve_check_head(const struct pvn_serve_head *h, uint32_t *len, char *why, size_t why_len)
{
    *len = ntohl(h->len);
    if (ntohl(h->magic) != MAGIC) {
        snprintf(why, why_len, "what answers there is not pvn-perf serve");
        return -EPROTO;
    }
    if (ntohl(h->wire) != PVN_SERVE_WIRE) {
        snprintf(why, why_len,
                 "the two pvn-perf do not fit together: theirs speaks version %u of the protocol, "
                 "this one (pvn-perf %s) version %d: install the same release on both hosts",
                 ntohl(h->wire), pvn_version(), PVN_SERVE_WIRE);
        return -EPROTONOSUPPORT;
    }
    if (*len < 2 || *len > PVN_SERVE_TEXT_MAX) {
        snprintf(why, why_len, "a message of %u bytes is not one of pvn-perf serve", *len);
        return -EMSGSIZE;
    }
    return 0;
}

/* Makes a frame. Takes ownership of j, which may be NULL. */
static char *frame(json_t *j, size_t *len)
{
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    size_t n = text ? strlen(text) : 0;
    struct pvn_serve_head h = {htonl(MAGIC), htonl(PVN_SERVE_WIRE), htonl((uint32_t)n)};
    char *out = text ? malloc(sizeof(h) + n) : NULL;

    if (out) {
        memcpy(out, &h, sizeof(h));
        memcpy(out + sizeof(h), text, n);
        *len = sizeof(h) + n;
    }
    free(text);
    json_decref(j);
    return out;
}

char *pvn_serve_write_request(const struct pvn_perf_opts *o, size_t *len)
{
    json_t *j = json_object(), *options = json_object(), *sizes = json_array();
    char host[64] = "";

    gethostname(host, sizeof(host) - 1);
    for (int i = 0; i < FIELDS; i++) {
        const char *at = (const char *)o + fields[i].at;

        json_object_set_new(options, fields[i].key,
                            fields[i].type == INT ? json_integer(*(const int *)at)
                                                  : json_real(*(const double *)at));
    }
    for (int i = 0; i < o->nsizes; i++)
        json_array_append_new(sizes, json_integer((json_int_t)o->size[i]));
    json_object_set_new(options, "sizes", sizes);
    json_object_set_new(options, "memory", json_string(pvn_memory_name(o->memory)));
    json_object_set_new(j, "host", json_string(host));
    json_object_set_new(j, "version", json_string(pvn_version()));
    json_object_set_new(j, "options", options);
    return frame(j, len);
}

char *pvn_serve_write_knock(const struct pvn_boot_knock *k, size_t *len)
{
    const uint8_t *bytes = (const uint8_t *)k;
    char hex[2 * sizeof(*k) + 1];

    /* A knock has nothing else, because it is sent unencrypted. */
    for (size_t i = 0; i < sizeof(*k); i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    return frame(json_pack("{ss s{ss}}", "version", pvn_version(), "options", KNOCK, hex), len);
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c) : NULL;

    return at ? (int)(at - digits) : -1;
}

int pvn_serve_read_knock(const char *text, size_t len, struct pvn_boot_knock *k)
{
    json_t *j = json_loadb(text, len, 0, NULL);
    const json_t *v = json_object_get(json_object_get(j, "options"), KNOCK);
    const char *hex = json_string_value(v);
    uint8_t *bytes = (uint8_t *)k;
    int good = hex && json_string_length(v) == 2 * sizeof(*k);

    for (size_t i = 0; good && i < sizeof(*k); i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);

        good = high >= 0 && low >= 0;
        if (good)
            bytes[i] = (uint8_t)(high << 4 | low);
    }
    json_decref(j);
    return good;
}

char *pvn_serve_write_answer(const struct pvn_serve_answer *a, size_t *len)
{
    return frame(json_pack("{sb ss ss ss}", "ok", a->ok, "reason", a->reason, "host", a->host,
                           "version", a->version),
                 len);
}

static const struct field *find_field(const char *key)
{
    for (int i = 0; i < FIELDS; i++)
        if (strcmp(fields[i].key, key) == 0)
            return &fields[i];
    return NULL;
}

static int take_field(struct pvn_perf_opts *o, const struct field *f, const json_t *v, char *why,
                      size_t why_len)
{
    double n = json_number_value(v);
    char *at = (char *)o + f->at;

    if ((f->type == INT ? !json_is_integer(v) : !json_is_number(v)) || !(n >= f->min) ||
        !(n <= f->max)) {
        snprintf(why, why_len, "option %s must be a number from %g to %g", f->key, f->min, f->max);
        return -EINVAL;
    }
    if (f->type == INT)
        *(int *)at = (int)n;
    else
        *(double *)at = n;
    return 0;
}

static int take_sizes(struct pvn_perf_opts *o, const json_t *v, char *why, size_t why_len)
{
    size_t n = json_array_size(v);

    if (!json_is_array(v) || n < 1 || n > PVN_PERF_MAX_SIZES) {
        snprintf(why, why_len, "sizes must be 1 to %d numbers", PVN_PERF_MAX_SIZES);
        return -EINVAL;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_array_get(v, i);

        if (!json_is_integer(s) || json_integer_value(s) < 0 ||
            json_integer_value(s) > (json_int_t)NCCL_MAX_NET_SIZE_BYTES) {
            snprintf(why, why_len, "a size must be a number of bytes up to %llu",
                     (unsigned long long)NCCL_MAX_NET_SIZE_BYTES);
            return -EINVAL;
        }
        o->size[i] = (uint64_t)json_integer_value(s);
    }
    o->nsizes = (int)n;
    return 0;
}

static int take_memory(struct pvn_perf_opts *o, const json_t *v, char *why, size_t why_len)
{
    for (int i = PVN_PERF_PINNED_IF_POSSIBLE; json_is_string(v) && i <= PVN_PERF_GPU; i++) {
        if (strcmp(json_string_value(v), pvn_memory_name((enum pvn_perf_memory)i)) == 0) {
            o->memory = (enum pvn_perf_memory)i;
            return 0;
        }
    }
    snprintf(
        why, why_len,
        "memory '%.32s' is not known here (pvn-perf %s knows gpu, pinned and movable, which is host): "
        "install the same release on both hosts",
        json_is_string(v) ? json_string_value(v) : "(not a string)", pvn_version());
    return -EINVAL;
}

static int take_options(struct pvn_perf_opts *o, json_t *options, char *why, size_t why_len)
{
    const char *key;
    json_t *v;
    int rc = 0;

    json_object_foreach(options, key, v)
    {
        const struct field *f = find_field(key);

        if (strcmp(key, "sizes") == 0)
            rc = take_sizes(o, v, why, why_len);
        else if (strcmp(key, "memory") == 0)
            rc = take_memory(o, v, why, why_len);
        else if (f)
            rc = take_field(o, f, v, why, why_len);
        else
            rc = -ENOENT;
        if (rc == -ENOENT)
            snprintf(why, why_len, "pvn-perf %s here does not know the option %.32s", pvn_version(),
                     key);
        if (rc)
            return -EINVAL;
    }
    if (o->nsizes < 1) {
        snprintf(why, why_len, "the request has no sizes");
        return -EINVAL;
    }
    return 0;
}

/* Checks the limits that the server's owner has set. */
static int check_limits(const struct pvn_perf_opts *o, char *why, size_t why_len)
{
    uint64_t bytes = pvn_p2p_bytes(o);

    if (o->duration * o->nsizes > o->max_time) {
        snprintf(
            why, why_len,
            "a duration of %.0f s for each of %d sizes is longer than this server allows, %.0f s "
            "(serve --max-time)",
            o->duration, o->nsizes, o->max_time);
        return -EINVAL;
    }
    if (bytes <= o->max_memory)
        return 0;
    snprintf(why, why_len,
             "these sizes, depth, group and channels need %llu MiB; this server allows %llu MiB "
             "(serve --max-memory)",
             (unsigned long long)(bytes >> 20), (unsigned long long)(o->max_memory >> 20));
    return -EINVAL;
}

/* Replaces all but printable ASCII in a text for a terminal. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if (*text < 0x20 || *text > 0x7e)
            *text = '?';
}

static void copy_text(char *out, size_t len, const json_t *v)
{
    snprintf(out, len, "%s", json_is_string(v) ? json_string_value(v) : "?");
    make_printable(out);
}

int pvn_serve_read_request(const char *text, size_t len, struct pvn_perf_opts *o, char *who,
                           size_t who_len, char *why, size_t why_len)
{
    json_t *j = json_loadb(text, len, 0, NULL), *options = json_object_get(j, "options");
    char host[64], version[64];
    int rc = -EINVAL;

    copy_text(host, sizeof(host), json_object_get(j, "host"));
    copy_text(version, sizeof(version), json_object_get(j, "version"));
    snprintf(who, who_len, "%s, pvn-perf %s", host, version);
    o->nsizes = 0;
    if (!json_is_object(options))
        snprintf(why, why_len, "the request is not one of pvn-perf p2p");
    else if (take_options(o, options, why, why_len) == 0)
        rc = check_limits(o, why, why_len);
    /* The reason may quote the client. */
    if (rc)
        make_printable(why);
    json_decref(j);
    return rc;
}

int pvn_serve_read_answer(const char *text, size_t len, struct pvn_serve_answer *a)
{
    json_t *j = json_loadb(text, len, 0, NULL);
    int rc = json_is_boolean(json_object_get(j, "ok")) ? 0 : -EPROTO;

    a->ok = json_is_true(json_object_get(j, "ok"));
    copy_text(a->reason, sizeof(a->reason), json_object_get(j, "reason"));
    copy_text(a->host, sizeof(a->host), json_object_get(j, "host"));
    copy_text(a->version, sizeof(a->version), json_object_get(j, "version"));
    json_decref(j);
    return rc;
}
