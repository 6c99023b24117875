# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/packaging: `make deb`, `make rpm`, `make wheel`: packages of the source archive, in the build tree's packages/;
# `make release`: what a release consists of.
pvn_packagingdir = $(docdir)/packaging
dist_pvn_packaging_DATA = plugin/packaging/README.md
pvn_packaging_monitoringdir = $(docdir)/packaging/monitoring
dist_pvn_packaging_monitoring_DATA = plugin/packaging/monitoring/README.md
PVN_PACKAGES = $(abs_builddir)/packages
RPMBUILD_OPTIONS =

# Before minutes of building, what is missing.
PVN_NEEDS = @$(srcdir)/plugin/packaging/needs.sh "make $@" xz:xz-utils:xz

deb:
	$(PVN_NEEDS) dpkg-buildpackage:build-essential:dpkg-dev dh:debhelper:debhelper
	$(MAKE) $(AM_MAKEFLAGS) dist-xz
	$(srcdir)/plugin/packaging/deb.sh $(distdir).tar.xz $(PVN_PACKAGES)/deb

rpm:
	$(PVN_NEEDS) rpmbuild:rpm:rpm-build
	$(MAKE) $(AM_MAKEFLAGS) dist-xz
	$(srcdir)/plugin/packaging/rpm.sh $(distdir).tar.xz $(PVN_PACKAGES)/rpm $(RPMBUILD_OPTIONS)

wheel:
	$(PVN_NEEDS) python3:python3-venv:python3-pip
	$(MAKE) $(AM_MAKEFLAGS) dist-xz
	$(srcdir)/plugin/packaging/wheel.sh $(distdir).tar.xz $(PVN_PACKAGES)/wheel

release:
	$(PVN_NEEDS) python3:python3-venv:python3-pip
	$(MAKE) $(AM_MAKEFLAGS) dist-xz
	$(srcdir)/plugin/packaging/release.sh $(PVN_PACKAGES)/release $(distdir).tar.xz

clean-packages:
	rm -rf $(PVN_PACKAGES)
clean-local: clean-packages
.PHONY: deb rpm wheel release clean-packages

if TOOLS
pvn_containerdir = $(pkgdatadir)/container
dist_pvn_container_DATA = plugin/packaging/container/Dockerfile plugin/packaging/container/Dockerfile.job \
    plugin/packaging/container/daemonset.yaml plugin/packaging/container/job.yaml
dist_pvn_container_SCRIPTS = plugin/packaging/container/check.sh plugin/packaging/container/install.sh
endif

EXTRA_DIST += plugin/packaging/conda/recipe.yaml.in plugin/packaging/debian/changelog plugin/packaging/debian/control plugin/packaging/debian/copyright \
    plugin/packaging/debian/libnccl-net-pvrdma.install \
    plugin/packaging/debian/libnccl-net-pvrdma.lintian-overrides plugin/packaging/debian/libnccl-net-pvrdma.triggers \
    plugin/packaging/debian/pvn-tools.lintian-overrides \
    plugin/packaging/debian/pvn-tools.install plugin/packaging/debian/source/format \
    plugin/packaging/rpm/nccl-net-pvrdma.spec plugin/packaging/portable/compat.c plugin/packaging/portable/requirements.txt \
    plugin/packaging/wheel/nccl_net_pvrdma/__init__.py plugin/packaging/wheel/nccl_net_pvrdma/__main__.py
dist_noinst_SCRIPTS += plugin/packaging/needs.sh plugin/packaging/deb.sh plugin/packaging/rpm.sh plugin/packaging/debian/rules \
    plugin/packaging/portable.sh plugin/packaging/portable/venv.sh plugin/packaging/wheel.sh plugin/packaging/wheel/wheel.py \
    plugin/packaging/release.sh plugin/packaging/release/sbom.py
