module oarlock.dev/local/node

go 1.26.0
