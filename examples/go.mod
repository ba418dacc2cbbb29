module github.com/rehop/rehop/examples

go 1.25.0

require github.com/rehop/rehop v0.0.0

replace github.com/rehop/rehop => ../
