apiVersion: apps/v1
kind: Deployment
metadata:
  name: NAME
spec:
  replicas: {{ .Values.replicas }}
  selector:
    matchLabels:
      app: NAME
  template:
    metadata:
      labels:
        app: NAME
        release: {{ .Release.Name }}
    spec:
      containers:
      - name: NAME
        image: example.com/NAME:1
        resources:
          requests:
            cpu: 100m
---
apiVersion: v1
kind: Service
metadata:
  name: NAME
spec:
  selector:
    app: NAME
  ports:
  - port: 80
