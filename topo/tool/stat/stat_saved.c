/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat of documents that pvn-topo --json stat wrote on another host. It fills the same
 * structures. Time stamps are computed from ages, so clocks of different hosts are never
 * compared. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "plugin/base/err.h"
#include "plugin/base/version.h"
#include "topo/tool/stat/stat.h"

/* The time of reading of every saved file, late enough for any age. */
#define NOW_NS (UINT64_C(1) << 62)

static uint64_t stamp(const json_t *o, const char *key)
{
    const json_t *age = json_object_get(o, key);
    double ns = json_number_value(age) * (double)PVN_NS_PER_S;
    if (!json_is_number(age))
        return 0; /* never */
    return ns <= 0 ? NOW_NS : ns < (double)(NOW_NS - 1) ? NOW_NS - (uint64_t)ns : 1;
}

static uint64_t number(const json_t *o, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(o, key));
    return n > 0 ? (uint64_t)n : 0;
}

/* Copies a text, cleaned as those of a statistics file: printable ASCII. */
static void copy(char *to, size_t size, const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    size_t n = 0;
    for (; s && s[n] && n < size - 1; n++)
        to[n] = (char)(s[n] < 0x20 || s[n] > 0x7e ? '?' : s[n]);
    to[n] = '\0';
}

#define COPY(field, o, key) copy(field, sizeof(field), o, key)

static bool is_text(const json_t *o, const char *key, const char *what)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s && strcmp(s, what) == 0;
}

static void take_counts(const json_t *o, struct pvn_stat_counts *n)
{
    const json_t *doorbells = json_object_get(o, "doorbells");
    n->look_ns = stamp(o, "last_call_s_ago");
    n->moved_ns = stamp(o, "moved_s_ago");
    n->stuck_ns = stamp(o, "stalled_s");
    n->changed_ns = stamp(o, "lanes_changed_s_ago");
    n->open = number(o, "requests_open");
    n->msgs = number(o, "messages");
    n->bytes = number(o, "bytes");
    n->chunks = number(o, "chunks");
    n->unexpected = number(o, "unexpected");
    n->lane_full = number(o, "lane_full");
    n->empty_polls = number(o, "empty_polls");
    n->known =
        (json_is_object(doorbells) ? PVN_STAT_KNOWS_DOORBELLS : 0) |
        (json_is_integer(json_object_get(o, "tcp_retransmits")) ? PVN_STAT_KNOWS_RETRANSMITS : 0);
    n->doorbells_send = number(doorbells, "send");
    n->doorbells_recv = number(doorbells, "recv");
    n->doorbells_empty = number(doorbells, "empty_poll");
    n->retransmits = number(o, "tcp_retransmits");
    n->failovers = number(o, "failovers");
    n->failbacks = number(o, "failbacks");
    n->replayed = number(o, "replayed");
}

static void take_comm(const json_t *o, struct pvn_stat_row *r)
{
    r->id = number(o, "comm");
    COPY(r->state, o, "state");
    COPY(r->device, o, "device");
    COPY(r->peer_host, o, "peer_host");
    COPY(r->peer_addr, o, "peer_address");
    COPY(r->lanes, o, "lanes");
    COPY(r->text, o, "text");
    r->seq = json_is_true(json_object_get(o, "partial"));
    r->sender = is_text(o, "kind", "send");
    r->phase = is_text(o, "trouble", "failed")  ? PVN_STAT_FAILED
               : is_text(o, "kind", "listener") ? PVN_STAT_LISTEN
               : is_text(o, "state", "UP")      ? PVN_STAT_UP
                                                : PVN_STAT_SETUP;
    for (r->sealed = PVN_STAT_SEALED_DATA; r->sealed != PVN_STAT_SEALED_NONE; r->sealed--)
        if (is_text(o, "sealed", stat_sealed_name(r)))
            break;
    r->peer_pid = (uint32_t)number(o, "peer_pid");
    r->born_ns = stamp(o, "born_s_ago");
    r->state_ns = stamp(o, "in_state_s");
    r->ended_ns = json_is_true(json_object_get(o, "closed")) ? r->state_ns : 0;
    take_counts(o, &r->n);
}

static void take_addresses(const json_t *list, struct pvn_stat_head *h)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s && !strchr(s, ' '))
            pvn_str_append(h->addrs, sizeof(h->addrs), " %s", s);
    }
}

static void take_process(const json_t *o, struct pvn_stats *f)
{
    struct pvn_stat_head *h = &f->head;
    static const enum pvn_stats_life lives[] = {PVN_STATS_ALIVE, PVN_STATS_DEAD,
                                                PVN_STATS_ELSEWHERE};
    COPY(f->path, o, "file");
    COPY(h->id.host, o, "host");
    COPY(h->command, o, "command");
    COPY(h->rank, o, "rank");
    COPY(h->rank_from, o, "rank_from");
    COPY(h->plugin, o, "plugin");
    take_addresses(json_object_get(o, "addresses"), h);
    f->life = PVN_STATS_ELSEWHERE;
    for (size_t i = 0; i < sizeof(lives) / sizeof(lives[0]); i++) {
        f->life = lives[i];
        if (is_text(o, "life", stat_life_name(f)))
            break;
    }
    f->state = '?';
    for (const char *s = "RSDTt"; *s && f->state == '?'; s++) {
        f->state = *s;
        if (!is_text(o, "state", stat_process_state(f)))
            f->state = '?';
    }
    f->now_ns = NOW_NS;
    h->id.pid = number(o, "pid");
    h->id.max_rows = PVN_STAT_ROWS;
    f->saved = true;
    h->abi = (uint32_t)number(o, "interface");
    h->net_ns = (uint32_t)number(o, "network_namespace");
    h->mono_ns = stamp(o, "began_s_ago");
    h->touched_ns = stamp(o, "written_s_ago");
    h->comms = number(o, "opened");
    h->failed = (uint32_t)number(o, "failed");
    h->untracked = (uint32_t)number(o, "untracked");
}

static int take_comms(const json_t *comms, struct pvn_stats *f)
{
    size_t n = json_array_size(comms), i;
    const json_t *comm;
    f->row = calloc(n ? n : 1, sizeof(*f->row));
    if (!f->row)
        return -ENOMEM;
    json_array_foreach(comms, i, comm)
    {
        take_comm(comm, &f->row[f->nrows]);
        f->head.open += !f->row[f->nrows++].ended_ns;
    }
    return 0;
}

/* Notes another version, which may lack figures or have more than this one reads. */
static void note_version(struct stat_list *list, const char *name, const json_t *doc)
{
    const char *v = json_string_value(json_object_get(doc, "tool_version"));
    if (!v || strcmp(v, pvn_version()) == 0 || strcmp(v, list->other_version) == 0)
        return;
    snprintf(list->other_version, sizeof(list->other_version), "%s", v);
    tool_error("%s: of pvn-topo %s, and this one is %s: figures that only one of them has are "
               "missing",
               name, list->other_version, pvn_version());
}

static bool readable(const char *name, const json_t *doc)
{
    const json_t *format = json_object_get(doc, "format_version");
    if (!json_is_array(json_object_get(doc, "processes"))) {
        tool_error("%s is JSON, but not of pvn-topo --json stat", name);
        return false;
    }
    if (!format || json_integer_value(format) == 1)
        return true;
    tool_error("%s: of format %lld, written by pvn-topo %.40s; this one, %s, reads format 1: "
               "install the same version everywhere",
               name, (long long)json_integer_value(format),
               json_is_string(json_object_get(doc, "tool_version"))
                   ? json_string_value(json_object_get(doc, "tool_version"))
                   : "of an unknown version",
               pvn_version());
    return false;
}

/* Handles a process that is in the list already. Its own host knows more about it than another host
 * that sees its file in a shared directory. */
static void take_again(struct stat_list *list, const char *name, int at, struct pvn_stats *f)
{
    struct pvn_stats *there = &list->file[at];
    if (there->life == PVN_STATS_ELSEWHERE && f->life != PVN_STATS_ELSEWHERE) {
        struct pvn_stats old = *there;
        *there = *f;
        *f = old;
    } else if (!list->twice_is_fine) {
        tool_error("%s: process %llu of %s is in an earlier file, too, which is shown", name,
                   (unsigned long long)f->head.id.pid, f->head.id.host);
    }
    pvn_stats_free(f);
}

int stat_add_document(struct stat_list *list, const char *name, const struct json_t *doc)
{
    const json_t *all = json_object_get(doc, "processes"), *one;
    size_t i;
    if (!readable(name, doc))
        return -EBADMSG;
    note_version(list, name, doc);
    json_array_foreach(all, i, one)
    {
        struct pvn_stats *f = stat_list_next(list);
        if (!f)
            return -ENOMEM;
        memset(f, 0, sizeof(*f));
        take_process(one, f);
        if (take_comms(json_object_get(one, "comms"), f) < 0) {
            tool_error("%s: out of memory", name);
            return -ENOMEM;
        }
        int at = stat_list_find(list, f);
        if (at >= 0)
            take_again(list, name, at, f);
        else
            list->n++;
    }
    return 0;
}

/* The file is opened only once, because it may be a pipe from another host. */
int stat_add_saved(struct stat_list *list, const char *path)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    json_error_t error;
    json_t *doc;
    int rc, c = f ? fgetc(f) : EOF;
    if (c != '{' && f != stdin) {
        if (f)
            fclose(f);
        return 1;
    }
    ungetc(c, f);
    doc = json_loadf(f, 0, &error);
    if (f != stdin)
        fclose(f);
    if (!doc) {
        tool_error("%s: line %d: %s: it was cut, or is not what pvn-topo --json stat wrote", path,
                   error.line, error.text);
        return -EBADMSG;
    }
    rc = stat_add_document(list, path, doc);
    json_decref(doc);
    return rc;
}
