// The definitions of PodMonitor, ServiceMonitor and PrometheusRule lie beside this module's code. Nothing of it is built.
module oarlock.dev/tests/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
