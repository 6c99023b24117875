/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "topo/tool/load/counters.h"
#include "topo/tool/stat/stat_grown.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "plugin/tools/json_text.h"

/* Another program may have written the document, so each value is checked at its use. */

struct json_t *stat_grown_adapters(const struct tool_answer *a)
{
    json_t *list = json_object_get(a->doc, "adapters");
    return json_array_size(list) > 0 ? list : NULL;
}

static bool same(const json_t *a, const json_t *b, const char *const *keys, int n)
{
    bool same = true;
    for (int i = 0; i < n && same; i++) {
        const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        same = x && y ? json_equal(x, y) : !x && !y;
    }
    return same;
}

/* Finds the element of a list that has the same values for these keys. */
static const json_t *find_like(const json_t *list, const json_t *like, const char *const *keys,
                               int n)
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        if (same(one, like, keys, n))
            return one;
    }
    return NULL;
}

static void set_grew(json_t *counter, const json_t *before)
{
    const json_t *was = json_object_get(before, "value"), *is = json_object_get(counter, "value");
    json_int_t grew = json_integer_value(is) - json_integer_value(was);
    /* A smaller value means that the driver was loaded again. */
    if (json_is_integer(was) && json_is_integer(is) && json_integer_value(was) >= 0)
        json_object_set_new(counter, "grew", json_integer(grew > 0 ? grew : 0));
}

static const char *const of_adapter[] = {"device", "port", "interface"};

void stat_grown_join(struct tool_answer *a, const struct tool_answer *more)
{
    json_t *list = json_object_get(a->doc, "adapters"), *adapter;
    size_t i;
    json_array_foreach(stat_grown_adapters(more), i, adapter)
    {
        if (!find_like(list, adapter, of_adapter, 3))
            json_array_append(list, adapter);
    }
}

void stat_grown_since(struct json_t *now, const struct json_t *before)
{
    static const char *const of_counter[] = {"source", "counter"};
    json_t *adapter, *counter;
    size_t i, k;
    json_array_foreach(now, i, adapter)
    {
        const json_t *was = find_like(before, adapter, of_adapter, 3);
        json_array_foreach(json_object_get(adapter, "counters"), k, counter)
        {
            set_grew(counter, find_like(json_object_get(was, "counters"), counter, of_counter, 2));
        }
    }
}

void stat_grown_keep(struct stat_grown_earlier *e, const struct tool_answer *all, int n)
{
    for (int i = 0; i < e->n; i++)
        json_decref(e->adapters[i]);
    free(e->adapters);
    *e = (struct stat_grown_earlier){0};
    if (n > 0)
        e->adapters = calloc((size_t)n, sizeof(json_t *));
    for (int i = 0; e->adapters && i < n; i++)
        e->adapters[i] = json_incref(stat_grown_adapters(&all[i]));
    e->n = e->adapters ? n : 0;
    e->read_s = e->adapters ? pvn_now_s() : 0;
}

double stat_grown_compare(const struct stat_grown_earlier *e, const struct tool_answer *all, int n)
{
    for (int i = 0; i < n && i < e->n; i++)
        stat_grown_since(stat_grown_adapters(&all[i]), e->adapters[i]);
    return e->n > 0 ? pvn_now_s() - e->read_s : 0;
}

/* ---- for people ---- */

static json_int_t grew(const json_t *counter)
{
    return json_integer_value(json_object_get(counter, "grew"));
}

/* "mlx5_0 port 1", "eth0". */
static void name_of(const json_t *adapter, char *out, size_t cap)
{
    if (pvn_json_text(adapter, "device")[0])
        snprintf(out, cap, "%s port %lld", pvn_json_text(adapter, "device"),
                 (long long)json_integer_value(json_object_get(adapter, "port")));
    else
        snprintf(out, cap, "%s", pvn_json_text(adapter, "interface"));
}

/* The counter's row in this program's table; NULL if a newer pvn-topo wrote it. */
static const struct pvn_topo_counter_info *info_of(const json_t *counter)
{
    for (int s = PVN_TOPO_COUNTER_PORT; s <= PVN_TOPO_COUNTER_ETHTOOL; s++) {
        if (strcmp(pvn_json_text(counter, "source"),
                   pvn_topo_counter_source_name((enum pvn_topo_counter_source)s)) == 0)
            return pvn_topo_counter_find((enum pvn_topo_counter_source)s,
                                         pvn_json_text(counter, "counter"));
    }
    return NULL;
}

static void print_line(const struct tool *t, const char *host, const json_t *adapter,
                       const char *text)
{
    char name[200], head[400], shown[2000];
    name_of(adapter, name, sizeof(name));
    snprintf(head, sizeof(head), "%s %s", host, name);
    int at = fprintf(t->out, "  %s: ", tool_escape(head, shown, 256));
    tool_wrap(t, at, 6, tool_escape(text, shown, sizeof(shown)));
}

/* Prints the counters of one adapter that grew, per second or in total, with their meanings.
 * Returns their number. */
static int print_adapter(const struct tool *t, const char *host, const json_t *adapter,
                         double seconds, bool per_second, bool *headed)
{
    char text[1900] = "";
    const json_t *counter;
    size_t k;
    int n = 0;
    json_array_foreach(json_object_get(adapter, "counters"), k, counter)
    {
        const struct pvn_topo_counter_info *info = info_of(counter);
        size_t used = strlen(text);
        if (grew(counter) <= 0)
            continue;
        n++;
        if (per_second)
            snprintf(text + used, sizeof(text) - used, "%s%.60s %.1f", used ? ", " : "",
                     pvn_json_text(counter, "counter"), (double)grew(counter) / seconds);
        else
            snprintf(text + used, sizeof(text) - used, "%s%.60s %lld%s%s%s", used ? "; " : "",
                     pvn_json_text(counter, "counter"), (long long)grew(counter), info ? " (" : "",
                     info ? info->meaning : "", info ? ")" : "");
    }
    if (n == 0)
        return 0;
    if (!*headed && per_second)
        fputs("\nCounters of adapters that grew, per second:\n", t->out);
    else if (!*headed)
        fprintf(t->out,
                "\n%sCounters of faults that grew within %.1f s%s (pvn-topo check there "
                "says what to do):\n",
                t->bold, seconds, t->off);
    *headed = true;
    print_line(t, host, adapter, text);
    return n;
}

/* Prints the growth on all hosts. Returns the number of adapters with two snapshots. */
static int print_all(const struct tool *t, const struct tool_answer *all, int n, double seconds,
                     bool per_second, bool *headed)
{
    int looked = 0;
    for (int i = 0; i < n; i++) {
        const json_t *adapter, *counter;
        size_t k, c;
        json_array_foreach(stat_grown_adapters(&all[i]), k, adapter)
        {
            bool known = false;
            json_array_foreach(json_object_get(adapter, "counters"), c, counter)
            {
                known |= json_is_integer(json_object_get(counter, "grew"));
            }
            looked += known;
            print_adapter(t, all[i].host, adapter, seconds, per_second, headed);
        }
    }
    return looked;
}

void stat_print_grown(const struct tool *t, const struct tool_answer *all, int n, double seconds)
{
    bool headed = false;
    int looked = print_all(t, all, n, seconds, false, &headed);
    if (looked > 0 && !headed)
        fprintf(t->out,
                "\nNo counter of faults grew within %.1f s on the %d adapter%s of these "
                "connections\n",
                seconds, looked, looked == 1 ? "" : "s");
}

void stat_print_grown_rates(const struct tool *t, const struct tool_answer *all, int n,
                            double seconds)
{
    bool headed = false;
    if (seconds > 0)
        print_all(t, all, n, seconds, true, &headed);
}
