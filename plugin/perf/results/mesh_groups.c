/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/results/mesh_groups.h"
#include "perf/results/order.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pvn_mesh_hosts(const struct pvn_mesh_matrix *m)
{
    int n = 0;

    for (int i = 0; i < m->n; i++)
        n = m->host[i] >= n ? m->host[i] + 1 : n;
    return n;
}

/* Finds the best path of each pair of hosts (more is better, 0: none works). False if not all were
 * measured. */
static bool best_paths(const struct pvn_mesh_matrix *m, int hosts, double *best)
{
    for (int from = 0; from < m->n; from++) {
        for (int to = 0; to < m->n; to++) {
            double v = m->value[(size_t)from * (size_t)m->n + (size_t)to];
            int a = m->host[from], b = m->host[to];
            double good = v < 0 ? 0 : m->less_is_better ? 1 / v : v;

            if (a == b)
                continue;
            if (isnan(v))
                return false;
            best[a * hosts + b] = fmax(best[a * hosts + b], good);
            best[b * hosts + a] = best[a * hosts + b];
        }
    }
    return true;
}

/* The usual rate of hosts: the median of each host's best rate with another. */
static double usual(const double *best, int hosts, double *sorted)
{
    for (int a = 0; a < hosts; a++) {
        sorted[a] = 0;
        for (int b = 0; b < hosts; b++)
            sorted[a] = fmax(sorted[a], best[a * hosts + b]);
    }
    qsort(sorted, (size_t)hosts, sizeof(*sorted), pvn_by_double);
    return sorted[hosts / 2];
}

/* Puts a host, and all hosts that it reaches well directly or through others, into a group. Returns
 * their number. */
static int collect(struct pvn_mesh_matrix *m, const double *best, int hosts, double fast, int first,
                   int *todo)
{
    int n = 0;

    todo[n++] = first;
    m->group[first] = m->groups;
    for (int done = 0; done < n; done++) {
        for (int b = 0; b < hosts; b++) {
            if (m->group[b] >= 0 || best[todo[done] * hosts + b] < fast)
                continue;
            m->group[b] = m->groups;
            todo[n++] = b;
        }
    }
    return n;
}

int pvn_mesh_group(struct pvn_mesh_matrix *m)
{
    int hosts = pvn_mesh_hosts(m);
    double *best = calloc((size_t)hosts * (size_t)(hosts + 1) + 1, sizeof(*best));
    int *todo = malloc(sizeof(*todo) * ((size_t)hosts + 1));
    bool whole = best && todo && best_paths(m, hosts, best);

    m->groups = 0;
    for (int h = 0; h < hosts; h++)
        m->group[h] = -1;
    if (whole && hosts > 1) {
        double fast = m->slow * usual(best, hosts, &best[hosts * hosts]);

        for (int h = 0; fast > 0 && h < hosts; h++)
            if (m->group[h] < 0 && collect(m, best, hosts, fast, h, todo) > 1)
                m->groups++;
            else if (m->group[h] == m->groups)
                m->group[h] = -1;
    }
    if (m->groups < 2)
        m->groups = 0;
    free(todo);
    free(best);
    return best && todo ? 0 : -ENOMEM;
}

bool pvn_mesh_crosses(const struct pvn_mesh_matrix *m, int from, int to)
{
    int a = m->group[m->host[from]], b = m->group[m->host[to]];

    return m->groups > 0 && a >= 0 && b >= 0 && a != b;
}

void pvn_mesh_group_names(const struct pvn_mesh_matrix *m, const struct pvn_mesh_names *names,
                          int group, char *out, size_t cap)
{
    int hosts = pvn_mesh_hosts(m), left = 0;
    size_t used = 0;

    for (int h = 0; h < hosts; h++)
        left += m->group[h] == group;
    out[0] = '\0';
    for (int h = 0; h < hosts; h++) {
        /* "host c7" */
        const char *name = strchr(names->host[h], ' ');

        if (m->group[h] != group)
            continue;
        name = name ? name + 1 : names->host[h];
        if (used + strlen(name) + sizeof(", and 9999 more") > cap) {
            snprintf(out + used, cap - used, "%s%d more", used ? " and " : "", left);
            return;
        }
        used += (size_t)snprintf(out + used, cap - used, "%s%s", used ? ", " : "", name);
        left--;
    }
}
