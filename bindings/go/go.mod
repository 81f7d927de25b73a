module ridgepoint

go 1.21
