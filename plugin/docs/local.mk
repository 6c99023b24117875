# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/docs: the pages for users, and nccl-net-pvrdma.7, whose parameters and variables come from the plugin's tables.
# They are installed in folders as they lie here, since they refer to each other.
EXTRA_DIST += plugin/docs/contributing.md plugin/docs/machine.svg
dist_doc_DATA = NEWS plugin/USERS.md
pvn_docsdir = $(docdir)/docs
dist_pvn_docs_DATA = plugin/docs/cluster.md plugin/docs/messages.md plugin/docs/security.md plugin/docs/troubleshooting.md plugin/docs/vsphere.md

# Its own compiler and no libtool, since it has to run here also where the plugin is built for another machine.
# Fortified everywhere, as it is by Ubuntu's gcc: the C library then ends a program that uses %2$s and not %1$s.
pages_cflags = -std=gnu11 -O1 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
pages_sources = plugin/docs/pages.c plugin/base/addr.c plugin/base/err.c plugin/base/hints.c plugin/base/nccl_vars.c \
    plugin/base/param_print.c plugin/base/param_table.c plugin/base/param_value.c
EXTRA_DIST += plugin/docs/pages.c plugin/docs/nccl-net-pvrdma.7.in
plugin/docs/pages: $(pages_sources) plugin/base/addr.h plugin/base/err.h plugin/base/hints.h plugin/base/nccl_vars.h plugin/base/param.h config.h
	$(AM_V_GEN)$(MKDIR_P) plugin/docs && cd $(srcdir) && \
	    $(CC_FOR_BUILD) $(pages_cflags) -DHAVE_CONFIG_H -I$(abs_builddir) -I. -Iplugin -o $(abs_builddir)/$@ $(pages_sources)

plugin/docs/nccl-net-pvrdma.7: plugin/docs/nccl-net-pvrdma.7.in plugin/docs/pages
	$(AM_V_GEN)plugin/docs/pages parameters >$@.parameters && plugin/docs/pages variables >$@.variables && \
	    sed -e '/^@PARAMETERS@$$/{' -e 'r $@.parameters' -e 'd' -e '}' \
	    -e '/^@VARIABLES@$$/{' -e 'r $@.variables' -e 'd' -e '}' $(srcdir)/plugin/docs/nccl-net-pvrdma.7.in >$@.new && \
	    mv $@.new $@
man_MANS = plugin/docs/nccl-net-pvrdma.7
CLEANFILES += plugin/docs/pages plugin/docs/nccl-net-pvrdma.7 plugin/docs/nccl-net-pvrdma.7.parameters plugin/docs/nccl-net-pvrdma.7.variables plugin/docs/nccl-net-pvrdma.7.new

# The man pages of the tools and their completion, from their tables of options.
if TOOLS
tool_pages_sources = plugin/docs/tool_pages.c plugin/perf/options/opts_table.c topo/tool/options.c
plugin/docs/tool_pages: $(tool_pages_sources) plugin/tools/options.h plugin/perf/options/opts.h \
    plugin/perf/options/opts_table.h topo/tool/options.h topo/tool/base/tool.h config.h
	$(AM_V_GEN)$(MKDIR_P) plugin/docs && cd $(srcdir) && \
	    $(CC_FOR_BUILD) $(pages_cflags) -DHAVE_CONFIG_H -I$(abs_builddir) -I. -Iplugin -o $(abs_builddir)/$@ $(tool_pages_sources)

plugin/perf/pvn-perf.1: plugin/perf/pvn-perf.1.in plugin/docs/tool_pages
	$(AM_V_GEN)$(MKDIR_P) plugin/perf && plugin/docs/tool_pages pvn-perf man <$(srcdir)/plugin/perf/pvn-perf.1.in >$@.new && mv $@.new $@

topo/pvn-topo.1: topo/pvn-topo.1.in plugin/docs/tool_pages
	$(AM_V_GEN)$(MKDIR_P) topo && plugin/docs/tool_pages pvn-topo man <$(srcdir)/topo/pvn-topo.1.in >$@.new && mv $@.new $@

plugin/perf/pvn-perf.bash: plugin/docs/tool_pages
	$(AM_V_GEN)$(MKDIR_P) plugin/perf && plugin/docs/tool_pages pvn-perf completion >$@.new && mv $@.new $@

topo/pvn-topo.bash: plugin/docs/tool_pages
	$(AM_V_GEN)$(MKDIR_P) topo && plugin/docs/tool_pages pvn-topo completion >$@.new && mv $@.new $@

man_MANS += plugin/perf/pvn-perf.1 topo/pvn-topo.1
pvn_bashcomp_DATA = plugin/perf/pvn-perf.bash topo/pvn-topo.bash
dist_noinst_DATA += plugin/docs/tool_pages.c plugin/perf/pvn-perf.1.in topo/pvn-topo.1.in
CLEANFILES += plugin/docs/tool_pages plugin/perf/pvn-perf.1 topo/pvn-topo.1 plugin/perf/pvn-perf.bash topo/pvn-topo.bash
endif
